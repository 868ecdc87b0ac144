from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tests.bench.compare.benches import save_bench
from tfdist.bench.compare.history import read_history
from tfdist.bench.compare.history_section import history_section, history_table
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import append_line, dumps
from tfdist.models.record import Record, RecordStatus


@pytest.fixture
def benches(tmp_path: Path) -> list[Path]:
    return [
        save_bench(tmp_path / "third", {"mirrored/auto": 1.15}, seed=3, day=3),
        save_bench(tmp_path / "first", seed=1, day=1),
        save_bench(tmp_path / "second", seed=2, day=2),
    ]


def test_benches_are_in_order_of_time_and_say_when_an_arm_changed(benches: list[Path]) -> None:
    found = read_history(benches)
    assert [bench.name for bench in found.benches] == ["first", "second", "third"]
    rows = {(row["arm"], row["bench"]): row for row in history_table(found).rows}
    assert rows["mirrored/auto", "first"]["verdict"] == "-"
    assert rows["mirrored/auto", "second"]["verdict"] == "cannot tell"
    assert rows["mirrored/auto", "third"]["verdict"] == "slower"
    assert rows["multiworker/ring", "third"]["verdict"] == "cannot tell"
    (answer,) = history_section(found).answer
    assert answer.startswith("mirrored/auto became slower in third (commit 000000000): 0.8")


def test_a_refused_arm_does_not_hide_the_machine(tmp_path: Path) -> None:
    bench = save_bench(tmp_path / "first", seed=1)
    refused = Record("mirrored/nccl", 1, {"strategy": "mirrored"}, RecordStatus.REFUSED, "no GPU", 2)
    append_line(bench / "records.jsonl", dumps(refused.to_json()))
    (label,) = read_history([bench]).benches
    assert (label.commit, "unknown" in label.machine) == (f"{1:040x}", False)


def test_patterns_choose_arms(benches: list[Path]) -> None:
    assert read_history(benches, ["m*/auto"]).arms == ("mirrored/auto",)
    with pytest.raises(TfdistError, match=r"--arm ring: no such arm.*multiworker/ring"):
        read_history(benches, ["ring"])


def test_an_arm_is_compared_with_the_last_bench_that_measured_it(benches: list[Path], tmp_path: Path) -> None:
    alone = save_bench(tmp_path / "fourth", arms={"one-device": 0.1}, day=4)
    again = save_bench(tmp_path / "fifth", {"mirrored/auto": 1.15}, seed=5, day=5)
    found = read_history([*benches, alone, again])
    rows = {row["bench"]: row for row in history_table(found).rows if row["arm"] == "mirrored/auto"}
    assert "fourth" not in rows
    assert rows["fifth"]["verdict"] == "cannot tell"  # as slow as in the third


def test_the_section_draws_and_lists_every_point(benches: list[Path]) -> None:
    section = history_section(read_history(benches))
    for chart in section.charts:
        chart.paint(Figure().subplots())
        assert len(chart.data) >= 6
    assert len(section.tables[0].data) == len(section.tables[0].rows) == 9


def test_another_machine_blames_no_commit(tmp_path: Path) -> None:
    """Without an arm on one device, a slower machine and a slower program look the same."""
    only = {"mirrored/auto": 0.1}
    first = save_bench(tmp_path / "first", arms=only, seed=1, day=1)
    moved = save_bench(
        tmp_path / "second", {"mirrored/auto": 2.0}, arms=only, seed=2, day=2, machine={"cpu": "Another CPU"}
    )
    found = read_history([first, moved])
    assert [row["verdict"] for row in history_table(found).rows] == [
        "-",
        "another machine, and no arm on one device in both",
    ]
    assert history_section(found).answer[0].startswith("Nothing compared")


def test_options_that_differ_are_named(benches: list[Path], tmp_path: Path) -> None:
    slow = save_bench(tmp_path / "fourth", {"mirrored/auto": 1.6}, seed=4, day=4, spec={"intra_op_threads": 1})
    answers = history_section(read_history([*benches, slow])).answer
    (answer,) = [text for text in answers if text.startswith("mirrored/auto became slower in fourth")]
    assert answer.endswith("), with intra_op_threads: 1, not None.")
