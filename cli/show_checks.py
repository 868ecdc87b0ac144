"""The rows of the doctor: wrapped on a terminal, one line each in a file or pipe, so that grep finds them."""

import os
import textwrap
from collections.abc import Sequence
from dataclasses import replace

import typer

from tfdist.launch.doctor.results import CheckResult, Verdict
from tfdist.launch.text import shortened

COLORS = {Verdict.OK: typer.colors.GREEN, Verdict.WARNING: typer.colors.YELLOW, Verdict.FAILED: typer.colors.RED}
VERDICT_WIDTH = max(len(verdict) for verdict in Verdict)
MOST_HOSTS = 3
"""Hosts in one row; more are counted."""
MIN_TEXT_WIDTH = 40
"""Columns below which the text starts on the line below its heading."""


def show(rows: Sequence[CheckResult], width: int | None) -> None:
    """Print all rows, wrapped to `width` columns; None: one line each."""
    color = False if "NO_COLOR" in os.environ else None
    for line in row_lines(merge_hosts(rows), width):
        typer.echo(line, color=color)


def merge_hosts(rows: Sequence[CheckResult]) -> list[CheckResult]:
    """One row for all hosts with the same result."""
    hosts: dict[CheckResult, list[str]] = {}
    for row in rows:
        hosts.setdefault(replace(row, host=""), []).append(row.host)
    return [replace(row, host=shortened(names, MOST_HOSTS)) for row, names in hosts.items()]


def row_lines(rows: Sequence[CheckResult], width: int | None) -> list[str]:
    """Each row: verdict, check, host and text, then the fix; on a terminal the fix starts on a new line."""
    check_width = max((len(row.check) for row in rows), default=0)
    host_width = max((len(row.host) for row in rows), default=0)
    heads = [f"{row.check:{check_width}}  {row.host:{host_width}}" for row in rows]
    return [line for row, head in zip(rows, heads, strict=True) for line in _lines(row, head, width)]


def _lines(row: CheckResult, head: str, width: int | None) -> list[str]:
    verdict = typer.style(f"{row.verdict:{VERDICT_WIDTH}}", fg=COLORS[row.verdict])
    texts = [row.text, f"-> {row.fix}"] if row.fix else [row.text]
    if width is None:
        return [f"{verdict}  {head}  {' '.join(texts)}".replace("\n", " ")]
    indent = VERDICT_WIDTH + len(head) + 4
    if width - indent < MIN_TEXT_WIDTH:
        return [f"{verdict}  {' '.join(head.split())}", *_wrapped(texts, width, 2)]
    first, *rest = _wrapped(texts, width, indent)
    return [f"{verdict}  {head}  {first.strip()}", *rest]


def _wrapped(texts: Sequence[str], width: int, indent: int) -> list[str]:
    """Words longer than a line stay whole, so that they can be copied."""
    wrapper = textwrap.TextWrapper(
        max(width - 1, indent + 20),
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line for text in texts for line in wrapper.wrap(text)]
