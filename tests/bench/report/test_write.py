"""The files of a report that is made of sections alone."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.axes import Axes

from tfdist.bench.report.figures.colors import SYNC
from tfdist.bench.report.section import Chart, Page, Section, Warning
from tfdist.bench.report.write import write_page
from tfdist.bench.table import Column, Table
from tfdist.launch.errors import ExitCode, TfdistError

DATA = pd.DataFrame({"op": ["all-reduce", "<b>|x"], "bytes": [1024, 2048], "seconds": [0.5, None]})
COLUMNS = (Column("op", ("op",)), Column("seconds", ("seconds",), "{:.1f}"))


def paint(axes: Axes) -> None:
    axes.plot([1, 2], [3, 4], color=SYNC, label="all-reduce")
    axes.set_xlabel("bytes")


CHART = Chart("sweep", "Sweep", 'Seconds "over" bytes', paint, DATA[["bytes", "seconds"]])
SECTION = Section(
    "sweep", "Collectives", ("It **takes** `0.5` s.",), (CHART,), (Table("ops", "Ops", DATA, COLUMNS),), ("By clock.",)
)


def test_a_full_disk_is_no_wrong_input_and_leaves_the_earlier_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = write_page(Page("Old", (), (SECTION,)), tmp_path)
    old = page.read_text()

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tfdist.bench.report.write.replace_file", full)
    with pytest.raises(
        TfdistError, match=r"cannot write the report to .* \(No space left on device\): free some"
    ) as error:
        write_page(Page("New", (), (SECTION,)), tmp_path)
    assert (error.value.exit_code, page.read_text()) == (ExitCode.FAILED, old)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("it's; new")
    warning = Warning("slow", "It was slow.", "Hurry.")
    facts, commands = {"cpu": ("A CPU",)}, ("tfdist x",)
    page = Page("A sweep", ("All is well.",), (SECTION,), facts, (warning,), commands, method="One.\n\n- Two.")
    path = write_page(page, out)
    assert path == out / "report.html"
    return out


def test_each_chart_and_table_has_its_files(out: Path) -> None:
    assert {path.name for path in out.iterdir()} == {
        "report.html", "report.md", "report.json", "sweep.png", "sweep.csv", "ops.csv",
    }  # fmt: skip
    assert (out / "sweep.csv").read_text() == "bytes,seconds\n1024,0.5\n2048,\n"


def test_markdown_has_all_parts(out: Path) -> None:
    text = (out / "report.md").read_text()
    for part in ("# A sweep\n\nAll is well.", "## Collectives\n\nIt **takes** `0.5` s.", '![Seconds "over" bytes](sweep.png)',
                 "| op | seconds |\n| --- | --: |\n| all-reduce | 0.5 |\n| &lt;b>\\|x | - |", "- By clock.", "- **slow**: It was slow. Hurry.",
                 "- cpu: A CPU", "## Method\n\nOne.", "- `tfdist x`"):  # fmt: skip
        assert part in text


def test_json_has_the_rows_of_tables_and_points_to_the_data_of_charts(out: Path) -> None:
    content = json.loads((out / "report.json").read_text())
    (section,) = content["sections"]
    assert section["tables"][0]["rows"] == DATA.replace({float("nan"): None}).to_dict("records")
    assert section["charts"][0]["data"] == "sweep.csv"
    assert content["commands"] == ["tfdist x"]


def test_html_shows_the_same_as_text(out: Path) -> None:
    page = (out / "report.html").read_text()
    for part in ("<strong>takes</strong> <code>0.5</code>", "&lt;b&gt;|x", 'aria-label="Seconds &#34;over&#34; bytes"', "<p>One.</p>",
                 "<li>Two.</li>", "It was slow.", 'download="sweep.csv"', "var(--sync)"):  # fmt: skip
        assert part in page
    assert "<b>|x" not in page
    assert SYNC not in page.partition("</style>")[2]


def test_html_needs_no_other_file_and_its_ids_are_unique(out: Path) -> None:
    page = (out / "report.html").read_text()
    targets = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    assert targets
    assert all(target.startswith(("#", "data:text/csv")) for target in targets)
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_files_that_a_new_report_does_not_have_are_removed_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("")
    write_page(Page("Old", (), (SECTION,)), tmp_path)
    write_page(Page("New", (), ()), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.md", "report.json", "mine.csv"}
