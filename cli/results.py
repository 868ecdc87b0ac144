"""What a bench found, on the console: a table on a terminal, aligned lines elsewhere."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import typer

from tfdist.bench.columns import COLUMNS, SHORT
from tfdist.bench.report import Report
from tfdist.bench.summary import ArmRow

if TYPE_CHECKING:
    from rich.console import Console


def show(report: Report, stream: TextIO) -> None:
    """The headline, the results and the warnings."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(file=stream, highlight=False, soft_wrap=not stream.isatty())
    (_table if stream.isatty() else _lines)(console, report.rows)
    for text in report.headline:
        console.print(f"\n{escape(text)}")
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {escape(f'{warning.text} {warning.advice}')}")


def name_unreadable(report: Report) -> None:
    """What was left out, and why, on stderr."""
    for folder in report.folders:
        for bad in folder.unreadable:
            typer.echo(f"tfdist: {folder.label}/{bad.file} was left out: {bad.reason}", err=True)


def _table(console: "Console", rows: Sequence[ArmRow]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in SHORT:
        table.add_column(name, overflow="fold", justify="left" if name in ("arm", "status") else "right")
    for row in rows:
        table.add_row(*(COLUMNS[name](row) for name in SHORT))
    console.print(table)


def _lines(console: "Console", rows: Sequence[ArmRow]) -> None:
    cells = [list(SHORT), *([COLUMNS[name](row) for name in SHORT] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        console.print("  ".join(padded).rstrip(), markup=False)
