"""The doctor's rows on a terminal of any width, and in a file: one line each there, for grep."""

import os
import textwrap
from collections.abc import Sequence
from dataclasses import replace

import typer

from tfdist.launch.doctor.results import CheckResult, Verdict

COLOURS = {Verdict.OK: typer.colors.GREEN, Verdict.WARNING: typer.colors.YELLOW, Verdict.FAILED: typer.colors.RED}
VERDICT_WIDTH = max(len(verdict) for verdict in Verdict)
MOST_HOSTS = 3
"""In one row; more are counted."""
LEAST_TEXT = 40
"""Columns below which the text goes below its heading."""


def show(rows: Sequence[CheckResult], width: int | None) -> None:
    """All rows, wrapped to the width of a terminal; None: one line each."""
    colour = False if "NO_COLOR" in os.environ else None
    for line in lines(merged(rows), width):
        typer.echo(line, color=colour)


def merged(rows: Sequence[CheckResult]) -> list[CheckResult]:
    """Rows that say the same of several hosts, as one."""
    hosts: dict[CheckResult, list[str]] = {}
    for row in rows:
        hosts.setdefault(replace(row, host=""), []).append(row.host)
    return [replace(row, host=in_short(names)) for row, names in hosts.items()]


def in_short(names: Sequence[str]) -> str:
    """`h1, h2`, or how many there are."""
    return ", ".join(names) if len(names) <= MOST_HOSTS else f"{len(names)} hosts"


def lines(rows: Sequence[CheckResult], width: int | None) -> list[str]:
    """What is printed."""
    checks, hosts = (
        max((len(text) for text in texts), default=0) for texts in ([r.check for r in rows], [r.host for r in rows])
    )
    heads = [f"{row.check:{checks}}  {row.host:{hosts}}" for row in rows]
    return [line for row, head in zip(rows, heads, strict=True) for line in row_lines(row, head, width)]


def row_lines(row: CheckResult, head: str, width: int | None) -> list[str]:
    """One row: verdict, check and host, what was found, and on a line of its own what to do about it."""
    verdict = typer.style(f"{row.verdict:{VERDICT_WIDTH}}", fg=COLOURS[row.verdict])
    mend = [f"-> {row.mend}"] if row.mend else []
    if width is None:
        return [f"{verdict}  {head}  {' '.join([row.text, *mend])}"]
    left = VERDICT_WIDTH + len(head) + 4
    if width - left < LEAST_TEXT:
        below = [line for text in (row.text, *mend) for line in wrapped(text, width, 2)]
        return [f"{verdict}  {' '.join(head.split())}", *below]
    first, *rest = [line for text in (row.text, *mend) for line in wrapped(text, width, left)]
    return [f"{verdict}  {head}  {first.strip()}", *rest]


def wrapped(text: str, width: int, indent: int) -> list[str]:
    """Lines of at most this width, indented; a word that is longer stays whole, so that it can be copied."""
    return textwrap.wrap(
        text,
        max(width - 1, indent + 20),
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
