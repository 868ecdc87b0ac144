"""`tfdist report`."""

import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tfdist.bench.collectives.results import holds_collectives
from tfdist.bench.folder import BenchPaths
from tfdist.cli.collectives import report_folder
from tfdist.cli.options import Json, option
from tfdist.cli.result_folders import check_out, list_skipped, with_records
from tfdist.cli.run_argument import argument
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import dumps


def open_page(path: Path) -> None:
    """Open a file in the browser of this machine (BROWSER, or the system's), or say that there is none."""
    if not webbrowser.open(path.resolve().as_uri()):
        typer.echo(f"tfdist: no browser on this machine: copy {path} to one with a browser, or set BROWSER", err=True)


def report(
    folders: Annotated[list[Path], argument("DIR...", "Folders of benches or launches.")],
    out: Annotated[
        Path | None, option("--out", "The folder for the report. Default: DIR; required for several with records.")
    ] = None,
    baseline: Annotated[
        str | None,
        option("--baseline", "The arm that all others are compared with. Default: the suite's, or one-device."),
    ] = None,
    open: Annotated[bool, option("--open", "Open report.html in the browser.")] = False,
    json: Json = False,
) -> None:
    """Write a report of the records in DIR; nothing is run.

    report.html is a page in one file, for any browser. report.md, report.csv, report.json and the charts have the same.

    Several folders, such as runs/*, become one report with a column for the folder, in the folder --out. Those without
    records are skipped. An arm is compared with baselines of its own folder.

    \b
    Examples:
      tfdist report bench_results/20260101T120000Z-cpu --open
      tfdist report runs/* --out all-runs
      tfdist report before after --out both
      tfdist report bench_results/20260101T120000Z-knobs --baseline multiworker
      tfdist report bench_results/20260101T120000Z-collectives
    """
    from tfdist.bench.report.build import make_report
    from tfdist.bench.report.write import write_page
    from tfdist.cli.show.report import show

    if len(folders) == 1 and holds_collectives(folders[0]):
        if baseline:
            raise TfdistError(
                f"--baseline {baseline}: {folders[0]} has an all-reduce by size, and no arm as baseline; omit it"
            )
        report_folder(folders[0], out, json=json)
        if open:
            open_page(BenchPaths(out or folders[0]).page)
        return
    used, empty = with_records(folders)
    root = _folder_for(used, out)
    content = make_report(used, baseline)
    path = write_page(content, root)
    list_skipped(empty, content.skipped)
    show(content, sys.stderr if json else sys.stdout)
    if open:
        open_page(path)
    typer.echo(f"\nreport: {path}", err=json)
    if json:
        typer.echo(dumps({**content.to_json(), "report": str(path)}))


def _folder_for(used: Sequence[Path], out: Path | None) -> Path:
    """A report on several folders must not replace the report of one of them."""
    if len(used) == 1:
        return out or used[0]
    if out is None:
        raise TfdistError(f"{len(used)} folders with records: name the folder for their joint report with --out")
    check_out(out, used)
    return out
