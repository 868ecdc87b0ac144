"""Where the time goes: the loss of each arm against ideal scaling, divided into its causes, and what to do about it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from tfdist.bench.lost_time import LossByTurn, LostTime, Part, Turns, UnknownLoss, loss_by_turn, mean_losses
from tfdist.bench.mean import Mean
from tfdist.bench.references import Reference, Spec, explainable, identity, reference
from tfdist.bench.report.figures.arm_chart import arm_chart, described, draw_interval, write
from tfdist.bench.report.figures.colors import GRID, INK, MUTED, PALETTE, PAPER
from tfdist.bench.report.section import Section
from tfdist.bench.report.summary import ArmRow, ReportData
from tfdist.bench.statistics import FEWEST_ROUNDS
from tfdist.bench.table import Column, Table, with_interval
from tfdist.launch.text import listed
from tfdist.models.collectives.spec import CollectiveOp, bus_factor
from tfdist.models.datasets.table import SYNTHETIC
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import GradientDtype

_OFTEN = 0.75
"""A rank that is the last one in a larger share of steps is a straggler, not chance."""
_MOST = 0.5
"""The link is the limit if its floor is a larger share of the exchange."""
_STEADY = 0.05
"""No advice rests on an ideal whose starts differ by more."""
_MORE_STARTS = "Measure again with more --incarnations on a quiet machine."


def _strategy(row: ArmRow, lost: LostTime) -> str:
    threads = ""
    if CATALOG[row.strategy].one_process and not row.measured[0].spec.get("gpus"):
        threads = " The replicas of one process share its threads: compare multiworker, which has a process for each."
    return (
        f"Each device computes its own gradients more slowly than in a training of its own.{threads} A larger batch or "
        "several steps in a call (steps_per_call) make it weigh less."
    )


def _exchange(row: ArmRow, lost: LostTime) -> str:
    size = f"{lost.gradient_bytes / 1e6:.1f} MB" if lost.gradient_bytes > 1e5 else f"{lost.gradient_bytes / 1e3:.1f} kB"
    gradients = f"{size} of gradients"
    if CATALOG[row.strategy].all_reduce != "communication" or not row.link or not lost.gradient_bytes:
        place = "inside one machine" if row.hosts == 1 else "between hosts"
        return (
            f"{gradients} are copied and added in every step, {place}. A larger batch does it less often per image; "
            f"'tfdist tune --strategy {row.strategy}' tries other ways to exchange them."
        )
    link = f"{row.link['bytes_per_s'] * 8 / 1e6:.0f} Mbit/s"
    # the least time in which a ring exchanges the gradients over the measured link
    floor = 1000 * bus_factor(CollectiveOp.ALL_REDUCE, lost.devices) * lost.gradient_bytes / row.link["bytes_per_s"]
    if floor > _MOST * lost.parts[Part.EXCHANGE].value:
        whole = row.measured[0].spec.get("gradient_dtype") == GradientDtype.FLOAT32
        halve = "Halve the bytes with --gradient-dtype bfloat16, exchange" if whole else "Exchange"
        return (
            f"The link is the limit: a ring needs at least {floor:.0f} ms for {gradients} over {link}. {halve} less "
            "often per image with a larger batch, or use a faster link."
        )
    return (
        f"The link is not the limit: a ring needs {floor:.0f} ms for {gradients} over {link}. Latency and the work of "
        f"the processes are; 'tfdist tune --strategy {row.strategy}' tries other packs and types."
    )


def _waiting(row: ArmRow, lost: LostTime) -> str:
    last = lost.slowest
    if last is None or last.share < _OFTEN:
        often = f" ({last.rank} in {last.share:.0%} of steps)" if last else ""
        return (
            f"No device is nearly always the last one{often}: steps vary by chance, or because other programs take the "
            "cores. Close them, or use larger batches, which vary less."
        )
    host = f" on {last.host}" if row.hosts > 1 else ""
    return (
        f"{last.rank}{host} is the last one in {last.share:.0%} of steps, and the others wait for it. Look for other "
        "programs on its cores ('tfdist doctor'), lower clocks or slower input; parameter-server does not wait."
    )


def _not_separated(row: ArmRow, lost: LostTime) -> str:
    if row.exchange is Exchange.ASYNC:
        return (
            "Workers read the variables from the parameter servers and send gradients back in every step. Try more "
            "--ps, --set placement=greedy, or a larger batch."
        )
    return "Exchange and waiting are separated only for tfdist's own loop with one step in a call (api = loop)."


_ADVICE: Mapping[Part, Callable[[ArmRow, LostTime], str]] = {
    Part.SHARED: lambda row, lost: (
        f"{lost.devices} trainings side by side that exchange nothing already lose it: the devices share cores, "
        "caches, memory bandwidth or power. No strategy avoids this; devices on separate machines do."
    ),
    Part.STRATEGY: _strategy,
    Part.EXCHANGE: _exchange,
    Part.WAITING: _waiting,
    Part.NOT_SEPARATED: _not_separated,
    Part.INPUT: lambda row, lost: (
        "Reading and decoding the data holds the devices up or takes their cores. Store images at the size of the "
        "model, or give the tasks more cores (cores_per_device)."
    ),
    Part.TIMING: lambda row, lost: (
        "The windows, which give the throughput, and the stamps of the steps disagree by that much: an uncertainty, "
        f"not a cause. {_MORE_STARTS}"
    ),
}
"""Sentences that name the cause of a part and what can be tried."""


_COLORS: Mapping[Part, tuple[str, str]] = {
    Part.SHARED: (PALETTE[0], ""),
    Part.STRATEGY: (PALETTE[1], ""),
    Part.EXCHANGE: (PALETTE[2], ""),
    Part.WAITING: (PALETTE[3], ""),
    Part.NOT_SEPARATED: (PALETTE[2], "//"),
    Part.INPUT: (PALETTE[4], ""),
    Part.TIMING: (PALETTE[5], ".."),
}
"""Color and hatch."""
_LEAST_SHARE = 0.002
"""Share of a step below which parts are not drawn."""


def _parts_text(lost: LostTime) -> str:
    """`multiworker ideal 98, exchange 40, ...`."""
    parts = [f"{part} {mean.value:.1f}" for part, mean in lost.parts.items()]
    return ", ".join([f"{lost.arm} ideal {lost.ideal.value:.1f}", *parts])


def _paint(axes: Axes, every: Sequence[LostTime]) -> None:
    """Parts that are gains, below 0, take a piece off the end of the bar."""
    for index, lost in enumerate(every):
        axes.barh(index, lost.ideal.value, height=0.62, color=GRID, label="ideal: one device without a strategy")
        left = lost.ideal.value
        for part, mean in lost.parts.items():
            if mean.value > _LEAST_SHARE * lost.step.value:
                color, hatch = _COLORS[part]
                axes.barh(index, mean.value, 0.62, left, lw=0.6, color=color, hatch=hatch, edgecolor=PAPER, label=part)
                left += mean.value
        gain = left - lost.step.value
        if gain > _LEAST_SHARE * lost.step.value:
            style: dict[str, Any] = {"color": PAPER, "hatch": "xx", "edgecolor": MUTED, "alpha": 0.8}
            axes.barh(index, gain, 0.62, left - gain, lw=0.6, label="gain: parts below 0", **style)
        high = draw_interval(axes, lost.step, lost.step.value, index, ms=6)
        axes.plot([lost.step.value] * 2, [index - 0.38, index + 0.38], color=INK, lw=1.4, label="measured step")
        share = lost.loss.value / lost.step.value
        write(axes, f"{lost.step.value:.0f} ms, {share:.0%} lost", max(left, high), index)
    axes.set_xlabel("milliseconds per step")
    axes.margins(x=0.16)


_ONE_DEVICE = (Reference.PLAIN, Reference.ONE_DEVICE)
_Arms = Mapping[tuple[str, int, str], Sequence[ArmRow]]
"""The measured rows by folder, number of hosts, and what an arm does."""


def _losses(rows: Sequence[ArmRow]) -> Sequence[tuple[ArmRow, LossByTurn | UnknownLoss]]:
    """The losses of arms whose devices exchange something, except arms that only serve to explain another one."""
    arms: dict[tuple[str, int, str], list[ArmRow]] = {}
    for row in rows:
        arms.setdefault((row.folder, row.hosts, identity(_spec(row))), []).append(row)
    losing = [row for row in rows if explainable(_spec(row))]
    serving = {id(other) for row in losing for other in _serving(row, arms)}
    return [(row, _loss(row, arms)) for row in losing if id(row) not in serving]


def _spec(row: ArmRow) -> Spec:
    return row.measured[0].spec


def _real(row: ArmRow) -> bool:
    return bool(_spec(row).get("dataset", SYNTHETIC) != SYNTHETIC)


def _alike(row: ArmRow, arms: _Arms, spec: Spec, hosts: int) -> Sequence[ArmRow]:
    """The arms with this spec on as many hosts, in the folder of `row`."""
    return arms.get((row.folder, hosts, identity(spec)), ())


def _serving(row: ArmRow, arms: _Arms) -> Sequence[ArmRow]:
    """The copies of an arm with synthetic data, or with step times."""
    if _real(row):
        return _alike(row, arms, reference(_spec(row), Reference.SYNTHETIC), row.hosts)
    same = _alike(row, arms, _spec(row), row.hosts)
    return [] if _spec(row).get("step_times") else [other for other in same if _spec(other).get("step_times")]


def _loss(row: ArmRow, arms: _Arms) -> LossByTurn | UnknownLoss:
    spec = reference(_spec(row), Reference.SYNTHETIC)
    found = {
        which: _alike(row, arms, reference(spec, which), 1 if which in _ONE_DEVICE else row.hosts)
        for which in Reference
        if which is not Reference.SYNTHETIC or _real(row)
    }
    references = {which: _turns(row, others[:1]) for which, others in found.items()}
    same = found.get(Reference.SYNTHETIC, [row, *_alike(row, arms, spec, row.hosts)])
    stamped = _timed(row, same), _timed(row, found[Reference.INDEPENDENT])
    return loss_by_turn(row.label, _turns(row, [row]), references, stamped)


def _timed(row: ArmRow, arms: Sequence[ArmRow]) -> Turns:
    """Turns of the first of these arms with step times."""
    return _turns(row, [arm for arm in arms if _spec(arm).get("step_times")][:1])


def _turns(row: ArmRow, arms: Sequence[ArmRow]) -> Turns:
    """Turns of an arm by round; one that was measured in several groups has several in a round: that of `row`'s."""
    groups = {record.round: record.group for record in row.measured}
    turns = {}
    for record in (record for arm in arms for record in arm.measured):
        if record.round not in turns or record.group == groups.get(record.round):
            turns[record.round] = record
    return turns


_METHOD = (
    "Ideal: the step of one device without a strategy (no-strategy), with as much work per device. The parts sum to "
    "the loss by construction, which validates none of them; a part below 0 is a gain. Each interval is one of 95 %: "
    "of the means of starts, with the variance of all arms counted in, and with fewer than 4 starts also that of "
    "earlier benches (2.3 % of a step from start to start).",
    "Shared hardware: what the same number of independent trainings loses. Strategy overhead: what one-device loses "
    "against no-strategy, and what the local gradients of the arm take longer than those of an independent training. "
    "Exchange: the least time over ranks from ready gradients to the end of the step, without the update of an "
    "independent training. Waiting: the excess of the rank that waits most. Input: real data against synthetic data. "
    "Timing difference: how far two clocks disagree, those of windows (throughput) and of single steps (stamps).",
)


_Explained = Sequence[tuple[ArmRow, LostTime]]


def lost_time_section(measured: ReportData) -> Section | None:
    """None for a bench that was not asked to explain, and had no step times."""
    rows = [row for row in measured.rows if row.measured]
    explains = any(folder.bench and folder.bench.suite.explain for folder in measured.folders)
    if not explains and not any(row.measured[0].spec.get("step_times") for row in rows):
        return None
    found = _losses(rows)
    known = [(row, loss) for row, loss in found if isinstance(loss, LossByTurn)]
    shown = [row for row, _ in known]
    explained = list(zip(shown, mean_losses([loss for _, loss in known]), strict=True))
    unknown = [loss for _, loss in found if isinstance(loss, UnknownLoss)]
    rest = tuple(f"{loss.arm}: not explained, because {loss.reason}." for loss in unknown)
    if not explained:
        return Section("lost-time", "Where the time goes", rest) if rest else None
    lost, table = {row.label: of_row for row, of_row in explained}, _table(explained)
    chart = arm_chart(
        "lost_time",
        "Where the time of a step goes",
        f"Milliseconds per step, ideal and lost: {described(_parts_text(lost) for _, lost in explained)}.",
        shown,
        lambda axes, drawn: _paint(axes, [lost[row.label] for row in drawn]),
        table.data,
    )
    return Section("lost-time", "Where the time goes", (*_answer(explained), *rest), (chart,), (table,), _METHOD)


def _answer(explained: _Explained) -> Iterator[str]:
    """The largest part of each arm's loss, with advice; arms with the same advice together."""
    if all(lost.rounds < FEWEST_ROUNDS for _, lost in explained):
        yield f"Too few rounds to say which part is the largest: use --rounds {FEWEST_ROUNDS} or more."
        return
    unsteady: dict[str, list[str]] = {}
    for _, lost in explained:
        if lost.ideal.spread > _STEADY:
            figures = f"{lost.ideal_arm}, the ideal, differ by {lost.ideal.spread:.0%} ({_starts(lost.ideal)} a step)"
            unsteady.setdefault(figures, []).append(lost.arm)
    for figures, arms in unsteady.items():
        yield f"No advice for {listed(arms)}: the starts of {figures}. {_MORE_STARTS}"
    steady = [(row, lost) for row, lost in explained if lost.ideal.spread <= _STEADY]
    yield from filter(None, (_without_advice(lost) for _, lost in steady))
    losing = [(row, lost) for row, lost in steady if lost.loss.value > 0]
    yield from _largest(losing, "{part} {verb} the largest part of the loss of {arms}. {advice}")
    shared = [(row, lost) for row, lost in losing if lost.largest() is Part.SHARED and lost.parts[Part.SHARED].differs]
    sentence = "Beyond shared hardware, {part} {verb} the largest part of the loss of {arms}. {advice}"
    yield from _largest(shared, sentence, without=Part.SHARED)


def _starts(mean: Mean) -> str:
    return f"{min(mean.starts):.1f} to {max(mean.starts):.1f} ms"


def _without_advice(lost: LostTime) -> str:
    """A sentence about an arm of which no part is surely the largest; empty: one is."""
    part = lost.largest()
    if lost.loss.differs and lost.loss.value < 0:
        return f"{lost.arm} loses nothing: a step takes {-lost.loss.value:.1f} ms less than ideal."
    if part and lost.loss.value > 0 and lost.parts[part].disagrees:
        disagree = f"its starts disagree on whether {part} is a loss or a gain ({_starts(lost.parts[part])})"
        return f"{lost.arm}: no advice, because {disagree}. {_MORE_STARTS}"
    if part and lost.loss.value > 0 and lost.parts[part].differs:
        return ""
    if part and lost.loss.differs:
        figures = f"{_milliseconds(lost.parts[part])} of {lost.loss.value:.1f} ms"
        return (
            f"{lost.arm}: {part} may be the largest part of its loss ({figures}): use more --incarnations to be sure."
        )
    return f"{lost.arm}: cannot tell whether it loses time: {_milliseconds(lost.loss)} ms of a step."


def _largest(explained: _Explained, sentence: str, without: Part | None = None) -> Iterator[str]:
    """Sentences about the arms whose largest part is surely a loss; that it is the largest may be uncertain."""
    by_advice: dict[tuple[Part, str, str], list[str]] = {}
    for row, lost in explained:
        part = lost.largest(without)
        if part and lost.parts[part].differs:
            figures = f"{lost.arm} ({lost.parts[part].value:.1f} of {lost.loss.value:.1f} ms)"
            verb = "is" if lost.is_certain(part, without) else "may be"
            by_advice.setdefault((part, _ADVICE[part](row, lost), verb), []).append(figures)
    for (part, advice, verb), arms in by_advice.items():
        text = sentence.format(part=part, arms=", ".join(arms), advice=advice, verb=verb)
        yield text[:1].upper() + text[1:]


_FORM = with_interval("{:.1f}".format)


def _milliseconds(mean: Mean) -> str:
    """`40.0 (38.1 to 41.9)`."""
    return _FORM(mean.value, mean.low, mean.high)


def _table(explained: _Explained) -> Table:
    """A row for each arm."""
    names = ["step", "ideal", "loss", *(str(part) for part in Part if any(part in lost.parts for _, lost in explained))]
    rows = []
    for _, lost in explained:
        last = lost.slowest
        row: dict[str, Any] = {"arm": lost.arm, "last_rank": last.rank if last else None}
        row |= {"last_rank_share": last.share if last else None, "rounds": lost.rounds, "starts": len(lost.step.starts)}
        means = vars(lost) | {str(part): mean for part, mean in lost.parts.items()}
        for key, mean in ((_keys(name), means.get(name)) for name in names):
            row |= dict(zip(key, (mean.value, mean.low, mean.high) if mean else (None,) * 3, strict=True))
        rows.append(row)
    columns = (
        Column("arm", ("arm",)),
        *(Column("lost" if name == "loss" else name, _keys(name), _FORM) for name in names),
        Column("last rank", ("last_rank", "last_rank_share"), "{}, {:.0%} of steps"),
        Column("starts", ("starts",)),
        Column("rounds", ("rounds",)),
    )
    data = pd.DataFrame(rows).convert_dtypes()
    return Table("lost_time_parts", "Milliseconds per step, with 95 % intervals", data, columns)


def _keys(name: str) -> tuple[str, str, str]:
    key = name.replace(" ", "_").replace("-", "_")
    return f"{key}_ms", f"{key}_ms_low", f"{key}_ms_high"
