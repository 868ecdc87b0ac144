"""A page -> report.md, report.html, report.json, and a PNG or CSV for each chart and table."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfdist.bench import durations, same_arms
from tfdist.bench.folder import BenchPaths
from tfdist.bench.report.build import Report, make_report
from tfdist.bench.report.figures.pictures import to_png
from tfdist.bench.report.format import to_csv
from tfdist.bench.report.html.render import render
from tfdist.bench.report.markdown import markdown
from tfdist.bench.report.section import Page, Section
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import read_json, replace_file, save_json
from tfdist.launch.typed_json import from_json

_LARGEST = 16 << 20
"""Bytes of report.json."""


@dataclass(frozen=True)
class _ReportFiles:
    files: tuple[str, ...]


def report_bench(root: Path, machine: str) -> tuple[Report, str]:
    """Write the report of the bench in `root`, also if it was interrupted; remember its equal arms and its durations.

    Returns:
        The report; and a warning if the machine's history cannot be written, else an empty text.

    Raises:
        TfdistError: no record can be read, or the folder is not writable.
    """
    report = make_report([root])
    write_page(report, root)
    warnings = (same_arms.remember(report.same_arms, machine, root), durations.remember(root, machine))
    return report, "; ".join(filter(None, warnings))


def write_page(page: Page, out: Path) -> Path:
    """Write every file of a report into `out`, and return the path of its page.

    Raises:
        TfdistError: `out` is not writable.
    """
    page_path = BenchPaths(out).page
    try:
        out.mkdir(parents=True, exist_ok=True)
        files = {**dict(_files_of(page.sections)), "report.md": markdown(page).encode(errors="replace")}
        files[page_path.name] = render(page).encode(errors="replace")
        with suppress(ValueError):  # the charts and tables of the report that is replaced
            for name in from_json(read_json(out / "report.json", _LARGEST), _ReportFiles).files:
                if name not in files and Path(name).name == name and name.endswith((".png", ".csv")):
                    (out / name).unlink(missing_ok=True)
        for name, data in files.items():
            replace_file(out / name, data)
        save_json(out / "report.json", {**page.to_json(), "files": sorted(files)})
    except OSError as error:
        what = f"cannot write the report to {out} ({error.strerror}): free some space, or choose another --out"
        raise TfdistError(what, ExitCode.FAILED) from None
    return page_path


def _files_of(sections: Sequence[Section]) -> Iterator[tuple[str, bytes]]:
    """Names and contents: NAME.png and NAME.csv of charts, NAME.csv of tables."""
    for section in sections:
        for chart in section.charts:
            yield f"{chart.name}.png", to_png(chart)
            yield f"{chart.name}.csv", to_csv(chart.data).encode(errors="replace")
        for table in section.tables:
            yield f"{table.name}.csv", to_csv(table.data).encode(errors="replace")
