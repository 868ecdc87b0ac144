"""`tfdist report`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tfdist.cli.options import Json, option
from tfdist.launch.json_files import dumps

Folders = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Folders of benches or launches.", show_default=False)
]
Out = Annotated[Path | None, option("--out", "The folder for the report. Default: the first DIR with records.")]


def report(folders: Folders, out: Out = None, json: Json = False) -> None:
    """Write a report of the records in DIR. The report is report.md, report.csv, report.json and plots; nothing is run.

    Several folders, such as runs/*, become one report with a column for the folder. Those without records are skipped.

    \b
    Examples:
      tfdist report bench_results/20260101T120000Z-cpu
      tfdist report runs/*
      tfdist report bench_results/a bench_results/b --out /tmp/a-and-b
    """
    from tfdist.bench.reading import holds_records
    from tfdist.bench.report.build import make_report
    from tfdist.bench.report.write import write_report
    from tfdist.cli.show_report import list_unreadable, show

    empty = [folder for folder in folders if folder.is_dir() and not holds_records(folder)]
    used = [folder for folder in folders if folder not in empty] or folders
    content = make_report(used)
    path = write_report(content, out or used[0])
    for folder in empty:
        typer.echo(f"tfdist: skipped {folder}: no records in it", err=True)
    list_unreadable(content)
    show(content, sys.stderr if json else sys.stdout)
    typer.echo(f"\nreport: {path}", err=json)
    if json:
        typer.echo(dumps({**content.to_json(), "report": str(path)}))
