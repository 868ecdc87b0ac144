"""Prints what changed from one bench to another."""

import re
from collections.abc import Iterator
from typing import TextIO

from tfdist.bench.compare.answers import one_sided, sentences
from tfdist.bench.compare.folders import ComparedFolders
from tfdist.bench.compare.gate import is_too_slow
from tfdist.bench.report.across import Change
from tfdist.bench.report.ratios import shown_row
from tfdist.cli.plain_console import PlainConsole
from tfdist.cli.show_rows import show_rows

NARROW = ("arm", "ratio", "interval", "verdict")
"""The columns for a terminal that has no room for all."""
_SLOW = "SLOWER THAN THE BOUND"


def show(compared: ComparedFolders, bound: float | None, stream: TextIO) -> None:
    """Show the differences of environment, the table, arms of one side, and the answer."""
    console = PlainConsole(stream)
    console.print(f"base: {compared.base}\nnew:  {compared.new}")
    console.print("\n".join(_environment(compared)))
    rows = [_row(change, compared.anchor, bound) for change in compared.changes]
    show_rows(console, rows, NARROW, red=lambda row: row["verdict"].startswith(_SLOW))
    for text in (*sentences(compared, bound), *one_sided(compared)):
        console.print(text)


def _environment(compared: ComparedFolders) -> Iterator[str]:
    if not compared.environment:
        yield "environment: no difference"
        return
    yield "environment:"
    for each in compared.environment:
        yield f"  {each.fact}: {_short(each.base)} -> {_short(each.new)}"


def _short(value: str) -> str:
    """A git commit as git shows it."""
    return value[:10] if re.fullmatch("[0-9a-f]{40}", value) else value


def _row(change: Change, anchor: str | None, bound: float | None) -> dict[str, str]:
    row = shown_row(change, anchor)
    if bound is not None and is_too_slow(change.comparison, bound):
        row["verdict"] = f"{_SLOW}, {row['verdict']}"
    return row
