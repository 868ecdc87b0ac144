import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from tests.bench.conftest import save_record
from tfdist.bench.environment import environment_of
from tfdist.bench.report.build import make_report
from tfdist.bench.report.columns import COLUMNS, COST_COLUMNS, values_of
from tfdist.bench.report.format import to_csv
from tfdist.bench.report.html.render import render
from tfdist.bench.report.markdown import markdown, to_table
from tfdist.bench.report.write import write_page
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import append_line
from tfdist.models.record import HostUsage, Record, TurnRecord, Window

MakeRecord = Callable[..., Record]
SaveAll = Callable[[Path, Sequence[Record]], Path]
CHARTS = ("kinds", "images_per_s", "efficiency", "window_times")
FILES = {
    "report.md",
    "report.html",
    "report.csv",
    "report.json",
    "costs.csv",
    "fastest_of_kind.csv",
    *(f"{name}.{kind}" for name in CHARTS for kind in ("png", "csv")),
}
PNG = b"\x89PNG\r\n\x1a\n"
RESULTS = Path(__file__).parents[3] / "bench_results"
RECORDED = sorted(path.parent for path in RESULTS.glob("*/report.md") if path.with_name("records.jsonl").exists())


@pytest.fixture
def root(tmp_path: Path, save_all: SaveAll, bench_records: list[Record]) -> Path:
    return save_all(tmp_path / 'it\'s a "bench"; really', bench_records)


def files(out: Path) -> dict[str, bytes]:
    """All but the records."""
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file() and path.name != "records.jsonl"}


def test_a_report_needs_only_records(root: Path) -> None:
    path = write_page(make_report([root]), root)
    assert path == root / "report.html"
    assert set(files(root)) == FILES
    text = (root / "report.md").read_text()
    for part in ("Use mirrored/auto: ", "## Results", "Weak scaling", "Baseline of speed-up and efficiency: one-device",
                 "## Environment", "A CPU", "## Method", "`tfdist bench`", "worker-1 was killed by SIGKILL"):  # fmt: skip
        assert part in text
    for name in CHARTS:
        assert f"]({name}.png)" in text
        assert files(root)[f"{name}.png"].startswith(PNG)


@pytest.mark.slow
def test_the_same_records_give_the_same_files(root: Path, tmp_path: Path) -> None:
    write_page(make_report([root]), tmp_path / "a")
    write_page(make_report([root]), tmp_path / "b")
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_csv_and_json_hold_every_arm_with_exact_figures(root: Path) -> None:
    report = make_report([root])
    results = next(section for section in report.sections if section.key == "results").tables[0]
    table = pd.read_csv(StringIO(to_csv(results.data))).set_index("arm")
    assert list(table.index) == ["one-device", "independent", "mirrored/auto", "multiworker/ring", "central-storage",
                                 "parameter-server/1-ps", "broken"]  # fmt: skip
    assert table.loc["one-device", "images_per_s"] == pytest.approx(
        50 / 0.504 / (1.0 * 1.04 * 0.98 * 1.0) ** (1 / 4), rel=1e-5
    )
    assert table.loc["mirrored/auto", "efficiency_vs_independent"] == pytest.approx(0.95, rel=1e-5)
    assert pd.isna(table.loc["broken", "images_per_s"])
    assert table.loc["broken", "reason"] == "worker-1 was killed by SIGKILL"
    rows = report.to_json()["rows"]
    assert [row["arm"] for row in rows] == list(table.index)
    assert list(rows[0]) == list(results.data.columns)


def test_a_broken_record_is_listed_and_the_rest_is_reported(root: Path) -> None:
    append_line(root / "records.jsonl", '{"format": 2, "arm"')
    report = make_report([root])
    assert len(report.rows) == 7
    assert re.search(r"records\.jsonl, line \d+: truncated", markdown(report))
    assert report.to_json()["unreadable"][0]["file"].startswith("records.jsonl, line ")


def test_no_readable_record_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").touch()
    with pytest.raises(TfdistError, match="none written"):
        make_report([tmp_path])
    (tmp_path / "records.jsonl").write_text('{"format": 99}')
    with pytest.raises(TfdistError, match="format 99") as raised:
        make_report([tmp_path])
    assert raised.value.exit_code == 2


def test_nothing_measured_is_a_report_without_pictures(
    tmp_path: Path, make_record: MakeRecord, save_all: SaveAll
) -> None:
    save_all(tmp_path, [make_record(status="refused", reason="it needs GPUs")])
    write_page(make_report([tmp_path]), tmp_path)
    assert set(files(tmp_path)) == {"report.md", "report.html", "report.csv", "report.json"}
    assert "it needs GPUs" in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_old_pictures_are_removed_when_nothing_was_measured(
    tmp_path: Path, make_record: MakeRecord, save_all: SaveAll, root: Path
) -> None:
    write_page(make_report([root]), tmp_path / "out")
    nothing = save_all(tmp_path / "nothing", [make_record(status="failed", reason="x")])
    write_page(make_report([nothing]), tmp_path / "out")
    assert set(files(tmp_path / "out")) == {"report.md", "report.html", "report.csv", "report.json"}


@pytest.mark.slow
def test_several_folders_are_one_report(tmp_path: Path, make_record: MakeRecord, save_all: SaveAll) -> None:
    one = save_all(tmp_path / "x", [make_record("one")])
    two = save_all(tmp_path / "y", [make_record("two", strategy="mirrored", devices=2)])
    write_page(make_report([one, two]), tmp_path / "out")
    assert list(pd.read_csv(tmp_path / "out" / "report.csv")["folder"]) == ["x", "y"]
    assert "| y: two |" in (tmp_path / "out" / "report.md").read_text()


def test_a_folder_that_is_not_writable_is_one_sentence(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TfdistError, match="--out"):
        write_page(make_report([root]), tmp_path / "file")


def test_no_text_breaks_out_of_its_cell(tmp_path: Path, make_record: MakeRecord, save_all: SaveAll) -> None:
    save_all(tmp_path, [make_record("a | b\nc", status="failed", reason="x | y\n\nz")])
    results = next(section for section in make_report([tmp_path]).sections if section.key == "results")
    table = to_table(results.tables[0])
    assert table.count("\n") == 3
    assert "a \\| b c" in table


def test_every_column_is_explained(root: Path) -> None:
    """bench_results/README.md says what each column means."""
    readme = (RESULTS / "README.md").read_text()
    for name in values_of(make_report([root]).rows[0], "weak"):
        assert f"`{name}`" in readme
    for name in (column.title for column in (*COLUMNS, *COST_COLUMNS)):
        assert name.partition(",")[0].partition(" (")[0].lower() in readme.lower()


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_a_recorded_bench_still_has_its_report(folder: Path) -> None:
    """If only words differ: `tfdist report` writes them anew."""
    assert markdown(make_report([folder])) == (folder / "report.md").read_text(encoding="utf-8")


def test_the_environment_has_each_fact_once(make_record: MakeRecord) -> None:
    facts = environment_of([make_record(), make_record()])
    assert facts["cpu"] == ("A CPU",)
    assert facts["cores"] == ("2",)
    assert facts["tensorflow"] == ("2.21.0",)
    assert facts["variable TF_NUM_INTRAOP_THREADS"] == ("1",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement", ["import tfdist.bench.report.write", "import tfdist.cli.report, tfdist.cli.bench"]
)
def test_what_is_not_imported(statement: str) -> None:
    """Reporting needs no TensorFlow; the command itself not even pandas."""
    unwanted = ["tensorflow", "keras", "tf_keras"] + (["pandas", "matplotlib", "numpy"] if "cli" in statement else [])
    code = f"import sys; {statement}; print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_a_report_is_written_where_tensorflow_cannot_be_imported(root: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['tensorflow', 'keras', 'tf_keras']))\n"
        "from pathlib import Path\n"
        "from tfdist.bench.report.build import make_report\n"
        "from tfdist.bench.report.write import write_page\n"
        "root = Path(sys.argv[1]); write_page(make_report([root]), root)"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=True, capture_output=True)
    assert set(files(root)) == FILES


@pytest.fixture
def in_turns(tmp_path: Path, make_record: MakeRecord) -> Path:
    """An arm of one start and three turns, the second of which was disturbed and repeated."""
    root = tmp_path / "turns"
    start = replace(make_record("one", [[]]), incarnation=1)
    save_record(root, start)
    windows = {"worker-0": tuple(Window(1, 10, 0.1, 1.0) for _ in range(4))}
    quiet, busy = (HostUsage(10.0, 2, {"worker-0": 10.0}, 10.0 + other, 0.0) for other in (0.0, 8.0))
    turns = [TurnRecord("one", round, 1, 1, order, "", windows, (usage,))
             for order, (round, usage) in enumerate([(1, quiet), (2, busy), (3, quiet), (2, quiet)], start=1)]  # fmt: skip
    lines = [json.dumps(turn.to_json()) for turn in turns]
    (root / "turns.jsonl").write_text("\n".join(lines) + "\n")
    return root


@pytest.mark.slow
def test_a_report_on_turns_lists_repeated_ones(in_turns: Path) -> None:
    report = make_report([in_turns])
    write_page(report, in_turns)
    text = (in_turns / "report.md").read_text()
    assert "take turns" in text
    assert "one, round 2: disturbed at first (other programs used 40% of the cores), then repeated" in text
    assert report.rows[0].rounds == 3
    assert not any(warning.code == "busy-machine" for warning in report.warnings)


def test_a_turn_repeated_beside_the_baseline_is_in_place_of_the_disturbed_one(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    for arm, spec in (("one", {}), ("two", {"strategy": "mirrored", "devices": 2})):
        save_record(tmp_path, replace(make_record(arm, [[]], **spec), incarnation=1))
    quiet, busy = (HostUsage(10.0, 2, {"worker-0": 10.0}, 10.0 + other, 0.0) for other in (0.0, 8.0))
    first = [(arm, round, arm == "two" and round == 2, False) for round in (1, 2, 3) for arm in ("one", "two")]
    turns = [*first, ("one", 2, False, True), ("two", 2, False, True)]
    lines = [
        TurnRecord(arm, round, 1, 1, order, "", {"worker-0": (Window(1, 10, 0.3 if slow else 0.1, 1.0),) * 4},
                   (busy if slow else quiet,), repeated)
        for order, (arm, round, slow, repeated) in enumerate(turns, start=1)
    ]  # fmt: skip
    (tmp_path / "turns.jsonl").write_text("".join(json.dumps(turn.to_json()) + "\n" for turn in lines))
    report = make_report([tmp_path])
    one, two = report.rows
    assert (one.rounds, two.rounds, len(one.rates), len(two.rates)) == (3, 3, 4, 3)
    assert two.images_per_s == pytest.approx(100.0)
    (line,) = report.listings["Repeated turns"]
    assert line.startswith("two, round 2: disturbed at first (")
    assert not [note for note in report.notes if "groups" in note]
    assert not any(warning.code == "busy-machine" for warning in report.warnings)


def test_a_turn_without_windows_is_listed(in_turns: Path) -> None:
    with (in_turns / "turns.jsonl").open("a") as lines:
        lines.write(json.dumps(TurnRecord("one", 4, 1, 1, 5, "", {"worker-0": ()}).to_json()) + "\n")
    report = make_report([in_turns])
    assert report.rows[0].rounds == 3
    assert report.folders[0].unreadable[0].reason == "one, round 4: no timed window"


def test_the_answer_is_the_first_line_and_then_how_sure_it_is(root: Path) -> None:
    report = make_report([root])
    advice, sure = report.headline
    assert advice.startswith("Use mirrored/auto: 1.25 times one device, 123 images/s. ")
    assert (
        sure
        == "Sure to within 2 %: that is how well the least certain ratio is known; no arm was measured twice (A/A)."
    )
    assert markdown(report).splitlines()[2:5:2] == [advice, sure]
    page = render(report)
    assert "<h1>Use mirrored/auto: 1.25 times one device, 123 images/s.</h1>" in page
    assert page.index("<h1>") < page.index(f">{sure}<")
    assert report.to_json()["headline"] == [advice, sure]
    assert report.to_json()["sure_to"] == [pytest.approx(0.02, abs=1e-3)]


def test_one_round_as_in_smoke_names_no_fastest_arm(
    tmp_path: Path, bench_records: list[Record], save_all: SaveAll
) -> None:
    save_all(tmp_path, [record for record in bench_records if record.round == 1])
    report = make_report([tmp_path])
    assert report.headline == (
        "Too little was measured to compare: 1 round of each arm. Not measured: broken (failed).",
    )
    assert report.to_json()["sure_to"] == [None]
    text = markdown(report) + render(report)
    assert "fastest" not in text
    assert "images/s" in text


def test_columns_without_values_are_left_out_and_the_verdict_comes_first(root: Path) -> None:
    results = next(section for section in make_report([root]).sections if section.key == "results").tables[0]
    titles = [column.title for column in results.shown_columns]
    assert titles[:8] == ["arm", "images/s (whole job)", "95 % interval", "speed-up", "speed-up interval",
                          "against the baseline", "efficiency", "efficiency vs independent"]  # fmt: skip
    assert "link" not in titles
    costs = next(section for section in make_report([root]).sections if section.key == "costs").tables[0]
    assert "GPU memory (MB)" not in [column.title for column in costs.shown_columns]
