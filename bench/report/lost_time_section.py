"""Where the time goes: the loss of each arm against ideal scaling, divided into its causes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from tfdist.bench.lost_time import LostTime, Part, Turns, UnknownLoss, lost_time
from tfdist.bench.mean import Mean
from tfdist.bench.references import Reference, Spec, explainable, identity, reference
from tfdist.bench.report.format import EMPTY
from tfdist.bench.report.lost_time_advice import advice_on
from tfdist.bench.report.lost_time_chart import Lost, lost_time_chart, values_of
from tfdist.bench.report.report_data import ReportData
from tfdist.bench.report.section import Section, Table
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import FEWEST_ROUNDS
from tfdist.models.datasets.table import SYNTHETIC

Losses = Sequence[tuple[ArmRow, LostTime | UnknownLoss]]
_Key = tuple[str, int, str]
"""Folder, number of hosts, and what an arm does."""


def lost_times(rows: Sequence[ArmRow]) -> Losses:
    """Losses of every arm that was measured and whose devices exchange something, in the order of the rows.

    Arms that only serve to explain another one are left out.
    """
    arms = _Arms.of([row for row in rows if row.measured])
    losing = [row for row in rows if row.measured and explainable(_spec(row))]
    serving = {id(other) for row in losing for other in arms.serving(row)}
    return [(row, arms.lost_time(row)) for row in losing if id(row) not in serving]


def _spec(row: ArmRow) -> Spec:
    return row.measured[0].spec


def _real(row: ArmRow) -> bool:
    return bool(_spec(row).get("dataset", SYNTHETIC) != SYNTHETIC)


@dataclass(frozen=True)
class _Arms:
    """The measured rows, by what they do."""

    by_key: Mapping[_Key, Sequence[ArmRow]]

    @classmethod
    def of(cls, rows: Sequence[ArmRow]) -> "_Arms":
        by_key: dict[_Key, list[ArmRow]] = {}
        for row in rows:
            by_key.setdefault((row.folder, row.hosts, identity(_spec(row))), []).append(row)
        return cls(by_key)

    def alike(self, row: ArmRow, spec: Spec, hosts: int) -> Sequence[ArmRow]:
        return self.by_key.get((row.folder, hosts, identity(spec)), ())

    def serving(self, row: ArmRow) -> Sequence[ArmRow]:
        """The copies of an arm with synthetic data, or with step times."""
        if _real(row):
            return self.alike(row, reference(_spec(row), Reference.SYNTHETIC), row.hosts)
        same = self.alike(row, _spec(row), row.hosts)
        return [] if _spec(row).get("step_times") else [other for other in same if _spec(other).get("step_times")]

    def lost_time(self, row: ArmRow) -> LostTime | UnknownLoss:
        spec = reference(_spec(row), Reference.SYNTHETIC) if _real(row) else _spec(row)
        found = {
            which: self.alike(row, reference(spec, which), row.hosts if which is Reference.INDEPENDENT else 1)
            for which in (Reference.PLAIN, Reference.ONE_DEVICE, Reference.INDEPENDENT)
        }
        same = self.alike(row, spec, row.hosts)
        references = {which: _turns(row, others[:1]) for which, others in found.items()}
        if _real(row):
            references[Reference.SYNTHETIC] = _turns(row, same[:1])
        timed = same if _real(row) else [row, *same]
        stamped = _timed(row, timed), _timed(row, found[Reference.INDEPENDENT])
        return lost_time(row.label, _turns(row, [row]), references, stamped)


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
    "the loss; a part below 0 is a gain. Each interval is one of 95 %, for the differences of turns of the same round.",
    "Shared hardware: what the same number of independent trainings loses. Strategy overhead: what one-device loses "
    "against no-strategy, and what the local gradients of the arm take longer than those of an independent training. "
    "Exchange: the least time over ranks from ready gradients to the end of the step, without the update of an "
    "independent training. Waiting: the excess of the rank that waits most. Input: real data against synthetic data.",
)


_Explained = Sequence[tuple[ArmRow, LostTime]]


def lost_time_section(measured: ReportData) -> Section | None:
    """None for a bench that was not asked to explain, and had no step times."""
    rows = [row for row in measured.rows if row.measured]
    asked = any(folder.bench and folder.bench.suite.explain for folder in measured.folders)
    if not asked and not any(row.measured[0].spec.get("step_times") for row in rows):
        return None
    found = lost_times(rows)
    explained = [(row, lost) for row, lost in found if isinstance(lost, LostTime)]
    rest = tuple(f"{each.arm}: not explained, because {each.reason}." for each in _rest(found))
    if not explained:
        return Section("lost-time", "Where the time goes", rest) if rest else None
    lost = {row.label: of_row for row, of_row in explained}
    shown = [row for row, _ in explained]
    answer = (*_answer(explained), *rest)
    table = Table("lost_time_parts", "Milliseconds per step, with 95 % intervals", _shown(lost), values_of(lost))
    charts = (lost_time_chart(shown, lost),)
    return Section("lost-time", "Where the time goes", answer, charts, (table,), _METHOD)


def _rest(found: Losses) -> Iterator[UnknownLoss]:
    yield from (lost for _, lost in found if isinstance(lost, UnknownLoss))


def _answer(explained: _Explained) -> Iterator[str]:
    """The largest part of each arm's loss, with advice; arms with the same advice together."""
    if all(lost.rounds < FEWEST_ROUNDS for _, lost in explained):
        yield f"Too few rounds to say which part is the largest: use --rounds {FEWEST_ROUNDS} or more."
        return
    yield from filter(None, (_without_advice(lost) for _, lost in explained))
    losing = [(row, lost) for row, lost in explained if lost.loss.value > 0]
    yield from _largest(losing, "{part} {verb} the largest part of the loss of {arms}. {advice}")
    shared = [(row, lost) for row, lost in losing if lost.largest() is Part.SHARED and lost.parts[Part.SHARED].differs]
    sentence = "Beyond shared hardware, {part} {verb} the largest part of the loss of {arms}. {advice}"
    yield from _largest(shared, sentence, without=Part.SHARED)


def _without_advice(lost: LostTime) -> str:
    """A sentence about an arm of which no part is surely the largest; empty: one is."""
    part = lost.largest()
    if lost.loss.differs and lost.loss.value < 0:
        return f"{lost.arm} loses nothing: a step takes {-lost.loss.value:.1f} ms less than ideal."
    if part and lost.loss.value > 0 and lost.parts[part].differs:
        return ""
    if part and lost.loss.differs:
        figures = f"{_milliseconds(lost.parts[part])} of {lost.loss.value:.1f} ms"
        return f"{lost.arm}: {part} may be the largest part of its loss ({figures}): use more --rounds to be sure."
    return f"{lost.arm}: cannot tell whether it loses time: {_milliseconds(lost.loss)} ms of a step."


def _largest(explained: _Explained, sentence: str, without: Part | None = None) -> Iterator[str]:
    """Sentences about the arms whose largest part is surely a loss; that it is the largest may be uncertain."""
    by_advice: dict[tuple[Part, str, str], list[str]] = {}
    for row, lost in explained:
        part = lost.largest(without)
        if part and lost.parts[part].differs:
            figures = f"{lost.arm} ({lost.parts[part].value:.1f} of {lost.loss.value:.1f} ms)"
            verb = "is" if lost.is_certain(part, without) else "may be"
            by_advice.setdefault((part, advice_on(row, lost, part), verb), []).append(figures)
    for (part, advice, verb), arms in by_advice.items():
        text = sentence.format(part=part, arms=", ".join(arms), advice=advice, verb=verb)
        yield text[:1].upper() + text[1:]


def _milliseconds(mean: Mean | None) -> str:
    """`40.0 (38.1 to 41.9)`."""
    if mean is None:
        return EMPTY
    return f"{mean.value:.1f}" + ("" if mean.low is None else f" ({mean.low:.1f} to {mean.high:.1f})")


def _shown(lost: Lost) -> pd.DataFrame:
    parts = [part for part in Part if any(part in each.parts for each in lost.values())]
    table: pd.DataFrame = pd.DataFrame([_row(each, parts) for each in lost.values()])
    return table


def _row(lost: LostTime, parts: Sequence[Part]) -> Mapping[str, str]:
    return {
        "arm": lost.arm,
        "step": _milliseconds(lost.step),
        "ideal": _milliseconds(lost.ideal),
        "lost": _milliseconds(lost.loss),
        **{str(part): _milliseconds(lost.parts.get(part)) for part in parts},
        "last rank": f"{lost.slowest.rank}, {lost.slowest.share:.0%} of steps" if lost.slowest else EMPTY,
        "rounds": str(lost.rounds),
    }
