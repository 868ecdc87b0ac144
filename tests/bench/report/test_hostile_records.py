"""Reports on records that somebody else has written."""

import io
import re
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from tests.bench.hostile import TEXTS, spoil
from tfdist.bench.report.build import make_report
from tfdist.bench.report.write import write_page
from tfdist.cli.command import run
from tfdist.cli.show.report import show

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[3] / "bench_results"
BENCH = RESULTS / "compare" / "base"
ALL = "".join(text for name, text in TEXTS.items() if name != "long")
MARKDOWN = {
    "html": "<script>alert(1)</script><img src=x onerror=alert(2)>one-device",
    "formula": r"$\frac{$one-device",
    "newline": "a # b one-device",
    "markdown": "# `|` | ** [link](javascript:alert(3)) ![](x) _a_ `one-device",
    "spreadsheet": "=1+1[red]one-device",
}
"""Name of an arm, as report.md shows it."""
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
Printed = pytest.CaptureFixture[str]


def check_files(folder: Path) -> None:
    """No text is anything else than text."""
    for path in folder.glob("report.*"):
        assert not CONTROLS.search(path.read_text()), path
        assert path.stat().st_size < 5e6
    page = (folder / "report.html").read_text()
    assert "<img" not in page
    assert page.count("<script") == 1
    tokens = [token for each in MarkdownIt().enable("table").parse((folder / "report.md").read_text())
              for token in (each, *(each.children or ()))]  # fmt: skip
    assert {token.type for token in tokens} & {"table_open"}
    assert not {token.type for token in tokens} & {"html_block", "html_inline", "link_open"}
    images = [token.attrs["src"] for token in tokens if token.type == "image"]
    assert all((folder / str(name)).exists() for name in images)
    for path in folder.glob("*.csv"):
        cells = pd.read_csv(path, dtype=str, keep_default_na=False).to_numpy().ravel()
        assert not [cell for cell in cells if cell.startswith(("=", "@"))], path


@pytest.mark.parametrize("name", TEXTS)
def test_every_text_is_shown_as_text(tmp_path: Path, name: str) -> None:
    root = spoil(BENCH, tmp_path / "bench", TEXTS[name])
    report = make_report([root])
    write_page(report, root)
    check_files(root)
    assert len({row.arm for row in report.rows}) == len(report.rows) >= 2
    assert all(len(row.arm) <= 120 for row in report.rows)
    inline = [token for token in MarkdownIt().enable("table").parse((root / "report.md").read_text()) if token.type == "inline"]  # fmt: skip
    cells = ["".join(child.content for child in token.children or ()) for token in inline]
    assert name not in MARKDOWN or MARKDOWN[name] in cells
    table = pd.read_csv(root / "report.csv")
    assert [text.removeprefix("'") for text in table["arm"]] == [row.arm for row in report.rows]
    stream = io.StringIO()
    show(report, stream)
    assert not CONTROLS.search(stream.getvalue())
    assert max(map(len, stream.getvalue().splitlines())) < 15_000
    assert report.rows[0].arm in stream.getvalue()


@pytest.mark.thorough
def test_comparisons_histories_predictions_and_sweeps_show_text_as_text(tmp_path: Path, capsys: Printed) -> None:
    base = spoil(RESULTS / "prediction" / "fitted", tmp_path / "base", ALL)
    again = spoil(RESULTS / "prediction" / "fitted", tmp_path / "again", ALL)
    sweep = spoil(RESULTS / "prediction" / "sweep", tmp_path / "sweep", ALL)
    for number, words in enumerate((
        ["compare", str(base), str(again)],
        ["compare", str(base), str(again), str(base)],
        ["predict", str(base), "--collectives", str(sweep), "--devices", "2,4"],
        ["report", str(sweep)],
    )):  # fmt: skip
        out = tmp_path / str(number)
        assert run([*words, "--out", str(out)]) == 0, capsys.readouterr()
        check_files(out)
        printed = capsys.readouterr()
        assert not CONTROLS.search(printed.out + printed.err)
        assert "<script>" in printed.out
