"""Prints what changed from one bench to another."""

import re
from collections.abc import Iterator
from statistics import median
from typing import TextIO

from tfdist.bench.compare.folders import ComparedFolders
from tfdist.bench.compare.gate import is_too_slow
from tfdist.bench.report.across import Change
from tfdist.bench.report.ratios import shown_row
from tfdist.cli.show_rows import show_rows
from tfdist.launch.text import counted

NARROW = ("arm", "ratio", "interval", "verdict")
"""The columns for a terminal that has no room for all."""
_SLOW = "SLOWER THAN THE BOUND"


def show(compared: ComparedFolders, bound: float | None, stream: TextIO) -> None:
    """Show the differences of environment, the table, arms of one side, and the answer."""
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False, soft_wrap=not stream.isatty())
    console.print(f"base: {compared.base}\nnew:  {compared.new}")
    console.print("\n".join(_environment(compared)))
    rows = [_row(change, compared.anchor, bound) for change in compared.changes]
    show_rows(console, rows, NARROW, red=lambda row: row["verdict"].startswith(_SLOW))
    for text in (*sentences(compared, bound), *_one_side(compared)):
        console.print(text)


def sentences(compared: ComparedFolders, bound: float | None) -> Iterator[str]:
    """What was compared, how small a change it can show, and the answer."""
    if compared.anchor:
        yield (
            f"Ratios are of speed-ups over {compared.anchor}, so that a change of the whole machine cancels; that of "
            f"{compared.anchor} is of images/s. Together the arms became {compared.machine_ratio:.2f} times as fast: "
            "the more that differs from 1, the wider the intervals, because arms need not follow the machine exactly."
        )
    elif compared.machine:
        yield f"warning: another machine ({'; '.join(compared.machine)}): ratios compare the machines, too."
    intervals = [each.comparison.interval for each in compared.changes if each.comparison]
    halves = [1 - found.low / (found.low * found.high) ** 0.5 for found in intervals if found]
    if halves:
        yield f"A change of less than about {median(halves):.0%} cannot be told from the noise of these benches."
    if len(halves) < len(intervals):
        yield "Arms without an interval have fewer than 3 rounds in one of the benches: add rounds to compare them."
    if bound is not None:
        slow = [change.arm for change in compared.too_slow(bound)]
        tested = counted(len(halves), "arm")
        limit = f"{100 * bound:.3g} %"
        none = f"No arm is surely slower by more than {limit}, of {tested} compared."
        yield f"Surely slower by more than {limit}: {', '.join(slow)}." if slow else none


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


def _one_side(compared: ComparedFolders) -> Iterator[str]:
    for label, arms in ((compared.base, compared.only_base), (compared.new, compared.only_new)):
        if arms:
            yield f"only in {label}: {', '.join(arms)}"
    for bad in compared.unreadable:
        yield f"skipped {bad.file}: {bad.reason}"


def _row(change: Change, anchor: str | None, bound: float | None) -> dict[str, str]:
    row = shown_row(change, anchor)
    if bound is not None and is_too_slow(change.comparison, bound):
        row["verdict"] = f"{_SLOW}, {row['verdict']}"
    return row
