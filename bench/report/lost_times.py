"""The rows of a report -> the lost time of each arm with several devices. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdist.bench.lost_time import LostTime, Turns, Undivided, lost_time
from tfdist.bench.references import Reference, Spec, explainable, identity, reference
from tfdist.bench.report.summary import ArmRow
from tfdist.models.datasets.table import SYNTHETIC

Losses = Sequence[tuple[ArmRow, LostTime | Undivided]]
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

    def lost_time(self, row: ArmRow) -> LostTime | Undivided:
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
