"""A page -> report.md, report.html, report.json, and a PNG or CSV for each chart and table."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfdist.bench.folder import BenchPaths
from tfdist.bench.report.bench_page import page_of
from tfdist.bench.report.build import Report
from tfdist.bench.report.figures.files import files_of, to_json
from tfdist.bench.report.html.render import render
from tfdist.bench.report.markdown import markdown
from tfdist.bench.report.section import Page
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import save_json
from tfdist.launch.typed_json import from_json, parse_json


@dataclass(frozen=True)
class _ReportFiles:
    files: tuple[str, ...]


def write_report(report: Report, out: Path) -> Path:
    """Write every file of a report on benches into `out`, and return the path of its page.

    Raises:
        TfdistError: `out` is not writable.
    """
    return _write(page_of(report), report.to_json(), out)


def write_page(page: Page, out: Path) -> Path:
    """Write every file of any other report into `out`, and return the path of its page.

    Raises:
        TfdistError: `out` is not writable.
    """
    content = {
        "format": 1,
        "title": page.title,
        "headline": list(page.headline),
        "sections": [to_json(section) for section in page.sections],
        "warnings": [asdict(warning) for warning in page.warnings],
        "environment": {fact: list(values) for fact, values in page.environment.items()},
        "commands": list(page.commands),
    }
    return _write(page, content, out)


def _write(page: Page, content: Mapping[str, Any], out: Path) -> Path:
    page_path = BenchPaths(out).page
    try:
        out.mkdir(parents=True, exist_ok=True)
        files = {**dict(files_of(page.sections)), "report.md": markdown(page).encode(errors="replace")}
        files[page_path.name] = render(page).encode(errors="replace")
        for name in set(_listed(out / "report.json")) - files.keys():
            (out / name).unlink(missing_ok=True)
        for name, data in files.items():
            (out / name).write_bytes(data)
        save_json(out / "report.json", {**content, "files": sorted(files)})
    except OSError as error:
        raise TfdistError(f"cannot write the report to {out} ({error.strerror}): choose another --out") from None
    return page_path


def _listed(path: Path) -> Iterator[str]:
    """The charts and tables of the report that is replaced."""
    try:
        names = from_json(parse_json(path.read_text(encoding="utf-8")), _ReportFiles).files
    except (OSError, ValueError):
        return
    yield from (name for name in names if Path(name).name == name and name.endswith((".png", ".csv")))
