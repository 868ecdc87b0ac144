"""Rows of text under column names: a table on a terminal, aligned lines elsewhere. Nothing in them is obeyed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tfdist.launch.text import plain


class PlainConsole(Console):
    """Prints strings as they are, also those in tables, without control characters; a file gets no wrapped lines."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=not stream.isatty())

    def render_str(self, text: str, **options: Any) -> Text:
        """The text as rich lays it out."""
        return super().render_str(plain(text), **options)


Row = Mapping[str, str]
_SPACE = 3
"""Characters between two columns of a table."""
_NARROW = 60
"""Characters of the narrowest terminal that has room for intervals."""
_LEFT = ("arm", "verdict", "status", "bench", "started", "commit", "machine", "note")


def show_rows(
    console: Console,
    rows: Sequence[Row],
    narrow: Sequence[str],
    narrowest: Sequence[str] = (),
    red: Callable[[Row], bool] = lambda _: False,
) -> None:
    """Print them, all with the keys of the first one.

    Args:
        narrow: the columns that stay on a terminal without room for all.
        narrowest: those that stay on one of fewer than 60 characters; empty: `narrow` without intervals.
        red: rows to stress.
    """
    if not rows:
        return
    lines = [list(rows[0]), *([row[name] for name in rows[0]] for row in rows)]
    if not console.is_terminal:
        for line in aligned(lines):
            console.print(line)
        return
    names = list(rows[0])
    if sum(max(map(len, column)) + _SPACE for column in zip(*lines, strict=True)) > console.width:
        kept = narrow if console.width >= _NARROW else narrowest or [name for name in narrow if name != "interval"]
        names = [name for name in names if name in kept]
    # headers are broken into words first, then names of arms, then the longest cells
    headers = {name: name.replace(" ", "\n") if names != list(rows[0]) else name for name in names}
    sizes = [max(*(len(row[name]) for row in rows), *map(len, headers[name].split("\n"))) for name in names]
    left = console.width - 2 - sum(size + _SPACE for size in sizes[1:])
    columns = [Column(headers[name], overflow="fold", justify="left" if name in _LEFT else "right") for name in names]
    columns[0].min_width = columns[0].max_width = min(sizes[0], max(8, console.width // 3, left))
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(row[name] for name in names), style="red" if red(row) else None)
    console.print(table)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, with columns as wide as their longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
