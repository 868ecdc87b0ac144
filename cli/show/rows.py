"""Tables and sentences: on a terminal no name in them is broken or cut, in a file no line is wrapped."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TextIO

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tfdist.cli.show.output import columns_of
from tfdist.launch.text import one_line, plain


def wrapped(text: str, width: int | None, indent: int = 0) -> list[str]:
    """The lines of a paragraph, broken at blanks only: a word that is longer than a line stays whole.

    Args:
        text: without line breaks.
        width: characters of the terminal; None: one line.
        indent: blanks before each line but the first, which has those of the text.
    """
    if width is None or cell_len(text) <= width:
        return [text]
    lines, used = [""], 0
    for word in re.findall(" *[^ ]+", text):
        size = cell_len(word)
        if lines[-1].strip() and used + size > width:
            word = " " * indent + word.lstrip(" ")
            lines.append("")
            used, size = 0, cell_len(word)
        lines[-1] += word
        used += size
    return lines


def echo_wrapped(lines: Sequence[str], stream: TextIO, indent: int = 2) -> None:
    """Print sentences and lists; on a terminal those that are too long continue below, indented."""
    width = columns_of(stream)
    parts = [part for line in lines for part in wrapped(plain(line), width, indent)]
    typer.echo("".join(f"{part}\n" for part in parts), nl=False, file=stream)


class PlainConsole(Console):
    """Prints strings as they are, without control characters. On a terminal they are wrapped at blanks."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self.columns = self.width if stream.isatty() else None
        """Characters of a line of the terminal; None: it is a file."""

    def render_str(self, text: str, **options: Any) -> Text:
        """The text as rich lays it out."""
        return super().render_str(plain(text), **options)

    def print(self, *texts: Any, **options: Any) -> None:
        """Print texts, each on lines of its own."""
        lines = [(line, len(line) - len(line.lstrip(" "))) for text in texts for line in plain(str(text)).split("\n")]
        self.print_lines([part for line, indent in lines for part in wrapped(line, self.columns, indent)], **options)

    def print_lines(self, lines: Sequence[str], **options: Any) -> None:
        """Print lines as they are, however long."""
        super().print("\n".join(lines), **options)


Row = Mapping[str, str]
PROSE = frozenset(["verdict", "note", "what", "why"])
"""Columns of sentences and commands, which can be broken at blanks. They come last in a table."""
_LEFT = ("arm", "verdict", "status", "bench", "started", "commit", "machine", "note")
_GAP = 3
"""Blanks between two columns of a table of figures."""


def show_rows(
    console: PlainConsole, rows: Sequence[Row], *narrower: Sequence[str], red: Callable[[Row], bool] = lambda _: False
) -> None:
    """Print a table of figures: on a terminal with a rule below its header, elsewhere aligned lines.

    Args:
        console: prints it.
        rows: as for `laid_out`.
        narrower: as for `laid_out`.
        red: rows to stress.
    """
    if not rows:
        return
    if console.columns is None:
        console.print_lines(aligned(rows))
        return
    right = [name for name in rows[0] if name not in _LEFT]
    tables = laid_out(rows, console.columns - 2, *narrower, gap=_GAP, right=right)
    header, *others = [[f" {line}" for line in lines] for lines in tables]
    longest = max(cell_len(line) for lines in (header, *others) for line in lines)
    console.print_lines(["", *header, " " + "\u2500" * min(longest, console.columns - 2)])
    for row, lines in zip(rows, others, strict=True):
        console.print_lines(lines, style="red" if red(row) else None)
    console.print_lines([""])


def aligned(rows: Sequence[Row], width: int | None = None, *narrower: Sequence[str]) -> list[str]:
    """The lines of a table, as `laid_out` has them."""
    return [line for lines in laid_out(rows, width, *narrower) for line in lines]


_LEAST_PROSE, _LEAST_NAME = 18, 20
"""Characters of the narrowest column of prose, and of that of names where longer ones have a line of their own."""
_NOTHING = ("", "-")
"""Texts of prose without a line of its own."""
_INDENT = 4
"""Blanks before prose on a line of its own."""


def laid_out(
    rows: Sequence[Row], width: int | None, *narrower: Sequence[str], gap: int = 2, right: Collection[str] = ()
) -> list[list[str]]:
    """The lines of the header of a table, and of each of its rows. Names and figures are never broken or cut.

    On a terminal without room for all, prose is wrapped or fewer columns are shown; else prose has lines of its own
    below its row; else a long name has one above its row, too.

    Args:
        rows: all with the keys of the first one, which are the names of the columns; those in `PROSE` are the last.
        width: characters of the terminal; None: each row is one line.
        narrower: the columns for a terminal without room for all, those for one without room for these, and so on;
            with names that the table may lack.
        gap: blanks between two columns.
        right: columns that are aligned at their ends.
    """
    names = [*rows[0]]
    rows = [{name: one_line(plain(row[name])) for name in names} for row in rows]
    layout = _Layout({name: max(map(cell_len, (name, *(row[name] for row in rows)))) for name in names}, gap, right)
    if width is not None and layout.width > width:
        choices = [names, *([name for name in names if name in each] for each in narrower)]
        orders = [(each, below, above) for above in (False, True) for below in (False, True) for each in choices]
        layouts = [_Layout.of(rows, each, width, gap, right, below, above) for each, below, above in orders]
        layout = next((each for each in layouts if each.width <= width), layouts[-1])
    return [layout.header(), *(layout.row(row, width) for row in rows)]


@dataclass(frozen=True)
class _Layout:
    """The columns of a table."""

    sizes: Mapping[str, int]
    """Characters of each, by name."""
    gap: int
    right: Collection[str]
    below: Sequence[str] = ()
    """Columns of prose that have lines of their own."""

    @classmethod
    def of(
        cls, rows: Sequence[Row], names: Sequence[str], width: int, gap: int, right: Collection[str],
        below: bool, above: bool,
    ) -> "_Layout":  # fmt: skip
        """The columns for a terminal; they are wider than it if they do not fit.

        Args:
            rows: of the table.
            names: of the columns.
            width: characters of the terminal.
            gap: see `laid_out`.
            right: see `laid_out`.
            below: prose has lines of its own.
            above: long names have lines of their own.
        """
        first, *others = names
        shown = [name for name in others if not (below and name in PROSE)]
        texts = {name: [*name.split(), *(row[name] for row in rows)] for name in (first, *shown)}
        sizes = {name: max(map(cell_len, texts[name])) for name in texts}
        least = {first: _LEAST_NAME} if above else {}
        if shown and shown[-1] in PROSE:
            words = (word for text in texts[shown[-1]] for word in text.split())
            least = {shown[-1]: max(_LEAST_PROSE, *map(cell_len, words))} | least
        layout = cls(sizes, gap, right, [name for name in others if name not in shown])
        for name, size in least.items():
            sizes[name] -= max(0, min(layout.width - width, sizes[name] - size))
        return layout

    @property
    def width(self) -> int:
        """Characters of a line."""
        return sum(self.sizes.values()) + self.gap * (len(self.sizes) - 1)

    def header(self) -> list[str]:
        """The names of the columns, broken at blanks."""
        cells = {name: wrapped(name, size) for name, size in self.sizes.items()}
        height = max(map(len, cells.values()))
        lines = self._joined({name: [""] * (height - len(cell)) + cell for name, cell in cells.items()})
        return [*lines, *([" " * _INDENT + ", ".join(self.below)] if self.below else [])]

    def row(self, row: Row, width: int | None) -> list[str]:
        """The cells of a row."""
        cells = {name: wrapped(row[name], size) if name in PROSE else [row[name]] for name, size in self.sizes.items()}
        first, above = next(iter(self.sizes)), list[str]()
        if cell_len(row[first]) > self.sizes[first]:
            above, cells[first] = cells[first], [""]
        texts = [" " * _INDENT + row[name] for name in self.below if row[name] not in _NOTHING]
        below = [line for text in texts for line in wrapped(text, width, _INDENT)]
        return [*above, *self._joined(cells), *below]

    def _joined(self, cells: Mapping[str, Sequence[str]]) -> list[str]:
        lines = []
        for texts in zip_longest(*cells.values(), fillvalue=""):
            padded = []
            for (name, size), text in zip(self.sizes.items(), texts, strict=True):
                blanks = " " * (size - cell_len(text))
                padded.append(blanks + text if name in self.right else text + blanks)
            lines.append((" " * self.gap).join(padded).rstrip())
        return lines
