from pathlib import Path

from matplotlib.figure import Figure

from tests.bench.compare.benches import save_bench
from tfdist.bench.report.build import make_report


def test_a_joint_report_has_the_ratio_of_the_same_arm(tmp_path: Path) -> None:
    roots = [
        save_bench(tmp_path / "base"),
        save_bench(tmp_path / "new", {"mirrored/auto": 1.15}, seed=1),
        save_bench(tmp_path / "newer", seed=2),
    ]
    (section,) = [each for each in make_report(roots).sections if each.key == "folders"]
    assert section.answer[0].startswith("new compared with base: mirrored/auto slower (0.8")
    assert section.answer[1] == "newer compared with base: no measurable difference in 3 arms."
    assert [len(table.data) for table in section.tables] == [3, 3]
    chart = section.charts[0]
    axes = Figure().subplots()
    chart.paint(axes)
    assert [label.get_text() for label in axes.get_yticklabels()][1] == "new: mirrored/auto"
    assert "new: mirrored/auto: 0.8" in chart.alt


def test_one_folder_or_none_in_common_has_no_such_section(tmp_path: Path) -> None:
    one = save_bench(tmp_path / "a")
    other = save_bench(tmp_path / "b", arms={"mirrored/x": 0.1})
    for roots in ([one], [one, other]):
        assert "folders" not in [section.key for section in make_report(roots).sections]


def test_the_figures_of_a_folder_do_not_depend_on_the_others(tmp_path: Path) -> None:
    short, long = save_bench(tmp_path / "a", rounds=3), save_bench(tmp_path / "b", rounds=9, seed=1, speed=1.3)
    alone = {(row.arm, row.images_per_s) for root in (short, long) for row in make_report([root]).rows}
    assert {(row.arm, row.images_per_s) for row in make_report([short, long]).rows} == alone
