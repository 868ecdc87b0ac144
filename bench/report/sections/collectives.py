"""Collectives: time and bandwidth by size, in the words of the NCCL tests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, groupby
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from tfdist.bench.collectives.figures import SizeFigure, figures_of, noise_sentences, pack_sentences
from tfdist.bench.collectives.results import Sweep
from tfdist.bench.collectives.table import ARM, RANKS, columns_for, pack_text, significant, values_of
from tfdist.bench.report.arm_records import label_of
from tfdist.bench.report.figures.colors import PALETTE
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.report.summary import ReportData
from tfdist.bench.statistics import Interval
from tfdist.bench.table import Table
from tfdist.launch.quantities import size_text
from tfdist.launch.text import counted, shortened

_MARKERS = "os^Dv*"
_NOTES = (
    "size, count, type, redop, algbw, busbw and #wrong are as in the NCCL tests: algbw is the size over the time, "
    "busbw is algbw times 2(n-1)/n for all-reduce, (n-1)/n for all-gather and 1 for broadcast and reduce, of n ranks, "
    "in decimal GB/s. Bus bandwidth can be compared with that of the hardware, whatever the number of ranks is.",
    "An operation runs as in a training step, through tf.distribute in a tf.function; the time is that of the slowest "
    "rank: the median over the rounds of each start of the processes, and the geometric mean over the starts, which "
    "intervals rest on. The first operation of each sample is not timed, unless it takes longer than the sample. All "
    "ranks start a sample together.",
    "After each sample every rank compares its result with the sum, or the copy, that it computes alone.",
)


def collectives_section(sweep: Sweep) -> Section | None:
    """None without a measurement."""
    figures = figures_of(sweep)
    if not figures:
        return None
    answer = (*_peaks(figures), *pack_sentences(sweep.lines), *noise_sentences(sweep), _right(figures))
    rows = [values_of(figure) for figure in figures]
    sized = [row for row in rows if row["tensors"] == 1]
    charts = tuple(_chart(sized, *row) for row in _CHARTS) if sized else ()
    data = pd.DataFrame(rows).convert_dtypes()
    table = Table("collectives", "Time and bandwidth of each size", data, (ARM, RANKS, *columns_for(figures)))
    ops = ", ".join(dict.fromkeys(str(figure.line.op) for figure in figures))
    refused = (f"Not measured: {arm}: {reason}" for arm, reason in sweep.header.not_measured.items())
    notes = (*_NOTES, *refused, *(f"Skipped: {text}" for text in sweep.unreadable))
    return Section("collectives", f"{ops.capitalize()} by size", answer, charts, (table,), notes)


def all_reduce_section(measured: ReportData) -> Section | None:
    """The collectives that benches used for their ceilings, those of all folders together."""
    sweeps = measured.sweeps
    if not sweeps:
        return None
    lines = [replace(line, arm=label_of(folder, line.arm)) for folder, sweep in sweeps.items() for line in sweep.lines]
    first, refused = next(iter(sweeps.values())), dict[str, str]()
    for folder, sweep in sweeps.items():
        refused |= {label_of(folder, arm): reason for arm, reason in sweep.header.not_measured.items()}
    header = replace(first.header, not_measured=refused)
    return collectives_section(replace(first, lines=tuple(lines), header=header))


def _peaks(figures: Sequence[SizeFigure]) -> Iterator[str]:
    """The highest bus bandwidth and the lowest latency; and the gradients of a model."""
    sized = [figure for figure in figures if figure.line.tensors == 1]
    lists = [figure for figure in figures if figure.line.tensors > 1]
    if sized:
        best = max(sized, key=lambda figure: figure.line.busbw)
        quick = min(sized, key=lambda figure: figure.line.seconds)
        limits = _limits(best.busbw_interval, 1)
        yield (
            f"The highest bus bandwidth is {significant(best.line.busbw)} GB/s{limits}: {best.line.arm} at "
            f"{size_text(best.line.bytes)}. The shortest operation takes {significant(quick.line.seconds * 1e6)} us"
            f"{_limits(quick.interval, 1e6)}: {quick.line.arm} at {size_text(quick.line.bytes)}."
        )
    if lists:
        quick = min(lists, key=lambda figure: figure.line.seconds)
        packs = f" in packs of {pack_text(quick.line.pack_bytes)}" if quick.line.pack_bytes else ""
        yield (
            f"All {quick.line.tensors} gradients of the model, {quick.line.bytes / 1e6:.2f} MB, take "
            f"{significant(quick.line.seconds * 1e3)} ms{_limits(quick.interval, 1e3)} with {quick.line.arm}{packs}, "
            f"the fastest here: {significant(quick.line.busbw)} GB/s bus bandwidth."
        )


def _limits(interval: Interval | None, factor: float) -> str:
    if interval is None:
        return ""
    low, high = (significant(limit * factor) for limit in (interval.low, interval.high))
    return f" ({interval.level:.0%} interval {low} to {high})"


def _right(figures: Sequence[SizeFigure]) -> str:
    wrong = [figure for figure in figures if figure.wrong]
    if not wrong:
        return f"All results were right: {counted(sum(figure.rounds for figure in figures), 'check')}."
    arms = shortened(f"{figure.line.arm} at {size_text(figure.line.bytes)}" for figure in wrong)
    total = counted(sum(figure.wrong for figure in wrong), "wrong element")
    return f"**{total}**: {arms}. Do not train with this."


_CHARTS = (
    ("collectives_busbw", "Bus bandwidth by size", "bus bandwidth, GB/s", "busbw_gb_per_s"),
    ("collectives_time", "Time of an operation by size", "time of an operation, us", "time_us"),
)
"""Name, title, axis with its unit, and the value in that unit."""


def _chart(rows: Sequence[Mapping[str, Any]], name: str, title: str, label: str, key: str) -> Chart:
    arms = {arm: list(of_arm) for arm, of_arm in groupby(rows, key=lambda row: row["arm"])}
    ends = (
        f"{arm} {significant(of_arm[0][key])} at {size_text(of_arm[0]['size_bytes'])} to "
        f"{significant(of_arm[-1][key])} at {size_text(of_arm[-1]['size_bytes'])}"
        for arm, of_arm in arms.items()
    )

    def paint(axes: Axes) -> None:
        for (arm, of_arm), color, marker in zip(arms.items(), cycle(PALETTE), cycle(_MARKERS), strict=False):
            sizes, values = [row["size_bytes"] for row in of_arm], [row[key] for row in of_arm]
            axes.plot(sizes, values, color=color, marker=marker, ms=4, lw=1.6, label=arm)
            known = [row for row in of_arm if row[f"{key}_low"] is not None]
            sizes, low, high = ([row[of] for row in known] for of in ("size_bytes", f"{key}_low", f"{key}_high"))
            axes.fill_between(sizes, low, high, color=color, alpha=0.15, lw=0)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=16))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(round(size))))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("size, bytes (K, M: 2 to the 10, 20)")
        axes.set_ylabel(label)

    alt = f"{title}, on logarithmic axes ({label}): {'; '.join(ends)}."
    return Chart(name, title, alt, paint, pd.DataFrame(rows).convert_dtypes(), inches=4.4)
