"""`tfdist compare` with more than two folders: arms over time."""

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from tfdist.bench.compare.history import read_history
from tfdist.bench.compare.history_section import history_section, in_order, shown_row
from tfdist.bench.report.write import write_pages
from tfdist.cli.plain_console import PlainConsole
from tfdist.cli.result_folders import list_skipped, with_records
from tfdist.cli.show_rows import show_rows
from tfdist.launch.json_files import dumps


def show_history(folders: Sequence[Path], arms: Sequence[str], out: Path | None, *, json: bool) -> None:
    """Show arms over many benches, and where one became faster or slower. Folders without records are skipped.

    Args:
        folders: in any order.
        arms: patterns of names; empty: all.
        out: a folder for a report; None: no report.
        json: print JSON in the last line of stdout.
    """
    used, empty = with_records(folders)
    found = read_history(used, arms)
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
