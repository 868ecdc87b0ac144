"""The same arm in several folders: its changes as a table and a chart."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from tfdist.bench.report.across import OTHER_MACHINE, Change, changes, find_anchor, machine_differences, values_of
from tfdist.bench.report.figures.arm_chart import name_rows
from tfdist.bench.report.figures.colors import ASYNC, INK, NONE, RED, SYNC
from tfdist.bench.report.format import between, for_unit
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.report.summary import ReportData
from tfdist.bench.statistics import ArmVerdict
from tfdist.bench.table import Column, Table
from tfdist.launch.text import counted, percent, shortened


def folders_section(measured: ReportData) -> Section | None:
    """Every later folder compared with the first one; None if no arm is in two of them."""
    folders = list(dict.fromkeys(row.folder for row in measured.rows))
    base, *others = ([row for row in measured.rows if row.folder == folder] for folder in folders)
    answer, tables, notes = [], [], []
    every: list[Change] = []
    for number, rows in enumerate(others, start=1):
        new, anchor, moved = rows[0].folder, find_anchor(base, rows), machine_differences(base, rows)
        if part := changes(base, rows, anchor):
            every += part
            answer.append(f"{new} compared with {folders[0]}: {_differences(part)}.")
            tables.append(ratio_table(f"folders-{number}", f"{new} over {folders[0]}", part, anchor))
            if anchor:
                text = f"ratios are of speed-ups over {anchor}, so that a change of the whole machine cancels."
                notes.append(f"{new}: {text}")
            elif moved:
                text = f"({'; '.join(moved)}), and has no common one-device arm: ratios compare machines."
                notes.append(f"{new} is of {OTHER_MACHINE} {text}")
    if not every:
        return None
    notes.append(
        "Turns of different folders did not alternate: the intervals contain the noise of turns and of starts of both, "
        "and are widened for the number of arms (Holm)."
    )
    labels = [f"{change.new.folder}: {change.arm}" if len(others) > 1 else change.arm for change in every]
    return Section(
        key="folders",
        title=f"The same arm in {counted(len(folders), 'folder')}",
        answer=tuple(answer),
        charts=(ratio_chart("folders", f"Over {folders[0]}", every, labels),),
        tables=tuple(tables),
        notes=tuple(notes),
    )


def _differences(part: Sequence[Change]) -> str:
    compared = [(change, change.comparison) for change in part if change.comparison]
    decided = [
        f"{change.arm} {verdict_text(found.verdict, '; '.join(change.options))} ({found.ratio:.2f} times)"
        for change, found in compared
        if found.verdict is not ArmVerdict.CANNOT_TELL
    ]
    if not any(found.interval for _, found in compared):
        return "nothing could be compared"
    return shortened(decided, most=12) or f"no measurable difference in {counted(len(compared), 'arm')}"


_MOST_DRAWN = 60
"""A chart has at most this many rows."""
_STYLES = {ArmVerdict.FASTER: (SYNC, ">"), ArmVerdict.SLOWER: (ASYNC, "<"), ArmVerdict.CANNOT_TELL: (NONE, "o")}
"""Color and marker."""


def verdict_text(verdict: str, differs: str, reason: str = "") -> str:
    """`faster`, `slower`, `cannot tell` or `not compared`, with what differs or the reason."""
    if reason:
        return f"{verdict}: {reason}"
    return f"{verdict} ({differs})" if differs else verdict


def ratio_table(name: str, title: str, changes: Sequence[Change], anchor: str | None) -> Table:
    """Both figures of each arm, the ratio with its interval, and the verdict.

    With an anchor also the ratio of images/s, which decides nothing.
    """
    columns = (
        Column("arm", ("arm",)),
        Column("base images/s", ("base_images_per_s",), "{:.1f}"),
        Column("new images/s", ("new_images_per_s",), "{:.1f}"),
        *((Column("images/s ratio", ("images_per_s_ratio",), "{:.3f}"),) if anchor else ()),
        Column("ratio", ("ratio",), "{:.3f}"),
        Column("interval", ("low", "high"), "{:.3f} to {:.3f}"),
        Column("verdict", ("verdict", "differs", "not_compared"), verdict_text),
    )
    data = pd.DataFrame([values_of(change) for change in changes])
    return Table(name, title, data, for_unit(columns, [change.new for change in changes]))


def ratio_chart(
    name: str, title: str, changes: Sequence[Change], labels: Sequence[str], bound: float | None = None
) -> Chart:
    """One row for each compared arm: its ratio with the interval; `labels` name all of `changes`."""
    every = [(change.comparison, label) for change, label in zip(changes, labels, strict=True) if change.comparison]
    compared = every[:_MOST_DRAWN]

    def paint(axes: Axes) -> None:
        axes.axvline(1.0, color=INK, lw=1)
        if bound:
            axes.axvline(1 - bound, color=RED, lw=1.2, ls="--", label=f"{percent(bound)} slower")
        for row, (found, _) in enumerate(compared):
            color, marker = _STYLES[found.verdict]
            if found.interval:
                axes.plot([found.interval.low, found.interval.high], [row, row], color=color, lw=2)
            axes.plot([found.ratio], [row], marker, ls="none", color=color, label=found.verdict)
        name_rows(axes, [label for _, label in compared])
        axes.set_xlabel("new over base, with its interval")

    alt = "; ".join(
        f"{label}: {found.ratio:.2f} times as fast{between(found.interval, '.2f')}, {found.verdict}"
        for found, label in compared
    )
    shown = f"{title} (the first {len(compared)} of {len(every)} arms)" if len(every) > len(compared) else title
    data = pd.DataFrame([values_of(change) for change in changes])
    return Chart(name, shown, alt, paint, data, inches=1.6 + 0.32 * max(len(compared), 1))
