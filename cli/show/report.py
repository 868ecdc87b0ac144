"""A report on the console: a table on a terminal, aligned lines elsewhere."""

from typing import TextIO

from tfdist.bench.report.build import Report
from tfdist.bench.report.columns import NARROW, NARROWEST, SHORT, columns_for, values_of, without_refused
from tfdist.bench.report.summary import REFUTED, WRONG
from tfdist.cli.show.rows import PlainConsole, show_rows
from tfdist.launch.text import shortened

ANSWERED = ("convergence", "batch", "lost-time")
"""Sections whose answer is shown on the console, too: a user has asked for it, with a suite or an option."""


def show(report: Report, stream: TextIO) -> None:
    """Show the answer and how sure it is, the table, failures and warnings."""
    console = PlainConsole(stream)
    for number, text in enumerate(report.headline):
        console.print(text, style="" if number else "bold")
    console.print()
    columns = columns_for(report.rows, SHORT)
    rows = []
    for row in without_refused(report.rows):
        values = values_of(row, report.scaling)
        rows.append({**{column.title: column.text(values) for column in columns}, "status": row.status})
    narrow, narrowest = ([each.title for each in columns_for(report.rows, names)] for names in (NARROW, NARROWEST))
    show_rows(
        console,
        rows,
        [*narrow, "status"],
        [*narrowest, "status"],
        red=lambda row: row["status"] in (REFUTED, WRONG),
    )
    for section in report.sections:
        if section.key in ANSWERED:
            console.print("\n".join(("", f"{section.title}:", *section.answer)))
    for note in report.notes:
        console.print(note, style="dim")
    for status, reason in dict.fromkeys((row.status, row.reason) for row in report.rows if row.reason):
        arms = shortened(row.label for row in report.rows if (row.status, row.reason) == (status, reason))
        text = reason if reason.startswith(status) else f"{status}: {reason}"
        console.print(f"{text} ({arms})", style="red")
    for warning in report.warnings:
        console.print(f"warning: {warning.text} {warning.advice}", style="yellow")
