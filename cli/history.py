"""`tfdist history`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tfdist.bench.compare.history import read_history
from tfdist.bench.compare.history_section import history_section, in_order, shown_row
from tfdist.cli.options import Json, option
from tfdist.cli.plain_console import PlainConsole
from tfdist.cli.result_folders import list_skipped, with_records
from tfdist.cli.show_rows import show_rows
from tfdist.launch.json_files import dumps

Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of benches.", show_default=False)]
Arms = Annotated[
    list[str] | None, option("--arm", "Only the arms that match, as mirrored/auto or 'mirrored/*'; can be repeated.")
]
Out = Annotated[
    Path | None, option("--out", "Write a report into this folder: report.html with plots, report.md, history.csv.")
]


def history(folders: Folders, arm: Arms = None, out: Out = None, json: Json = False) -> None:
    """Show arms over many benches, by date and commit. Lists where one became faster or slower; runs nothing.

    Folders without records are skipped, so that a whole folder of results can be given.

    \b
    Examples:
      tfdist history bench_results/*
      tfdist history bench_results/*-cpu --arm multiworker/ring --out history
      tfdist history nightly/* --arm 'mirrored/*' --json
    """
    from tfdist.bench.report.write import write_pages

    used, empty = with_records(folders)
    found = read_history(used, arm or ())
    section = history_section(found)
    stream = sys.stderr if json else sys.stdout
    console = PlainConsole(stream)
    list_skipped(empty)
    show_rows(console, [shown_row(point) for point in in_order(found)], ("arm", "started", "images/s", "verdict"))
    for text in section.answer:
        console.print(text)
    if out:
        page = write_pages(out, "History", section.answer, [section], commands=found.commands)
        typer.echo(f"\nreport: {page}", err=json)
    if json:
        typer.echo(dumps(found.to_json()))
