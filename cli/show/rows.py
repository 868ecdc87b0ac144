"""Rows of text under column names: a table on a terminal, aligned lines elsewhere. Nothing in them is obeyed."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.text import Text

from tfdist.launch.text import plain

if TYPE_CHECKING:
    from rich.console import Console


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
_LEFT = ("arm", "verdict", "bench", "started", "commit", "machine", "note")


def show_rows(
    console: "Console", rows: Sequence[Row], narrow: Sequence[str], red: Callable[[Row], bool] = lambda _: False
) -> None:
    """Print them, all with the keys of the first one.

    Args:
        narrow: the columns that stay on a terminal without room for all.
        red: rows to stress.
    """
    if not rows:
        return
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    if not console.is_terminal:
        for line in aligned([list(widths), *([row[name] for name in widths] for row in rows)]):
            console.print(line)
        return
    wide = sum(width + _SPACE for width in widths.values()) <= console.width
    kept = narrow if console.width >= _NARROW else [name for name in narrow if name != "interval"]
    _table(console, rows, [name for name in widths if wide or name in kept], red)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, with columns as wide as their longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _table(console: "Console", rows: Sequence[Row], names: Sequence[str], red: Callable[[Row], bool]) -> None:
    from rich import box
    from rich.table import Column, Table

    columns = [Column(name, overflow="fold", justify="left" if name in _LEFT else "right") for name in names]
    longest = max(len(row[names[0]]) for row in rows)
    columns[0].min_width = min(longest, max(8, console.width // 3))
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(row[name] for name in names), style="red" if red(row) else None)
    console.print(table)
