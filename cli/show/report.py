"""A report on the console: a table on a terminal, aligned lines elsewhere."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import typer

from tfdist.bench.report.build import Report
from tfdist.bench.report.columns import NARROW, NARROWEST, SHORT, columns_for, values_of
from tfdist.bench.report.summary import WRONG, ArmRow
from tfdist.cli.show.rows import PlainConsole
from tfdist.launch.text import counted, labelled, plain
from tfdist.models.record import RecordStatus

if TYPE_CHECKING:
    from rich.console import Console

ANSWERED = ("convergence", "stragglers", "storage", "batch", "lost-time")
"""Sections whose answer is shown on the console, too: a user has asked for it, with a suite or an option."""
_SPACE = 3
"""Characters between two columns of a table."""
_NARROW = 60
"""Characters of the narrowest terminal that has room for the columns in NARROW."""


def show(report: Report, stream: TextIO) -> None:
    """Show the table, the headline, failures and warnings."""
    console = PlainConsole(stream)
    (_table if stream.isatty() else _lines)(console, report.rows)
    for text in report.headline:
        console.print(f"\n{text}")
    for section in report.sections:
        if section.key in ANSWERED:
            console.print("\n".join(("", f"{section.title}:", *section.answer)))
    for note in report.notes:
        console.print(note, style="dim")
    for status, reason in dict.fromkeys((row.status, row.reason) for row in report.rows if row.reason):
        arms = ", ".join(row.label for row in report.rows if (row.status, row.reason) == (status, reason))
        console.print(f"{labelled(status, reason)} ({arms})", style="red")
    for warning in report.warnings:
        console.print(f"warning: {warning.text} {warning.advice}", style="yellow")


def refused_line(report: Report) -> str:
    """Which arms were refused, because a reader of figures does not miss them; empty: none."""
    refused = [row.label for row in report.rows if row.status == RecordStatus.REFUSED]
    return f"refused: {len(refused)} of {counted(len(report.rows), 'arm')}: {', '.join(refused)}" if refused else ""


def list_unreadable(report: Report) -> None:
    """List skipped files on stderr, with the reason."""
    for folder in report.folders:
        for bad in folder.unreadable:
            typer.echo(plain(f"tfdist: skipped {folder.label}/{bad.file}: {bad.reason}"), err=True)


def _cells(row: ArmRow, names: Sequence[str]) -> list[str]:
    values = values_of(row, "")
    return [*(column.text(values) for column in columns_for([row], names)), row.status]


def _header(rows: Sequence[ArmRow], names: Sequence[str]) -> list[str]:
    return [*(column.title for column in columns_for(rows, names)), "status"]


def _widths(rows: Sequence[ArmRow], names: Sequence[str]) -> list[int]:
    lines = [_header(rows, names), *(_cells(row, names) for row in rows)]
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _columns(width: int, rows: Sequence[ArmRow]) -> tuple[Sequence[str], int]:
    """The columns for a terminal, and how many characters a narrow table has besides the names of the arms."""
    if width < _NARROW:
        return NARROWEST, 25
    return (SHORT if sum(_widths(rows, SHORT)) + len(SHORT) * _SPACE < width else NARROW), 48


def _table(console: "Console", rows: Sequence[ArmRow]) -> None:
    from rich import box
    from rich.table import Column, Table

    names, others = _columns(console.width, rows)
    longest = max(len(row.label) for row in rows)
    columns = [Column(name, overflow="fold", justify="right") for name in _header(rows, names)]
    columns[0].justify, columns[0].min_width = "left", max(8, min(longest, console.width - others))
    columns[-1].justify, columns[-1].no_wrap = "left", True
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*_cells(row, names), style="red" if row.status == WRONG else None)
    console.print(table)


def _lines(console: "Console", rows: Sequence[ArmRow]) -> None:
    widths = _widths(rows, SHORT)
    for line in (_header(rows, SHORT), *(_cells(row, SHORT) for row in rows)):
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        console.print("  ".join(padded).rstrip())
