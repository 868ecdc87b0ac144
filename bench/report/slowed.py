"""Arms with a slow worker, beside the same arms without: what is left, and what waiting would leave. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfdist.bench.references import DISTRIBUTION, identity
from tfdist.bench.report.summary import ArmRow, statistics_of
from tfdist.bench.statistics import Comparison
from tfdist.bench.updates import Updates, updates_of
from tfdist.strategies.catalog import Exchange


@dataclass(frozen=True)
class Slowed:
    """An arm with a slow worker, beside the same arm without."""

    row: ArmRow
    steady: ArmRow
    """The same arm without."""
    factor: float
    """The slow worker's gradients take this many times as long."""
    extra_ms: float
    """Each of its steps takes this much longer, beside the factor."""
    comparison: Comparison
    """Its throughput over that of the same arm without the slow worker."""
    slowest: float
    """What would be left of its throughput if every worker waited for the slow one in each step."""
    average: float
    """What would be left if no worker waited for another one."""
    extra_from: str
    """The arm without exchange whose slow worker shows how much longer its step takes; empty: the factor says it."""

    @property
    def middle(self) -> float:
        """Below it the workers wait rather than not."""
        return (self.slowest + self.average) / 2

    @property
    def times(self) -> float:
        """Slow-down of the affected part: the gradients of the slow worker, or, with extra time, its step."""
        return 1 / self.slowest if self.extra_ms else self.factor

    @property
    def backup(self) -> int:
        """Number of workers that a step does not wait for."""
        return int(_spec(self.row).get("backup_workers") or 0)

    @property
    def strategy(self) -> str:
        """The strategy with the options that say whether its workers wait."""
        sync = " --sync" if _spec(self.row).get("sync") else ""
        return f"{self.row.strategy}{sync}" + (f" --backup-workers {self.backup}" if self.backup else "")

    @property
    def worker(self) -> int:
        """The slow one."""
        return int(_spec(self.row)["slow_worker"])

    @property
    def updates(self) -> Updates | None:
        """None: not counted."""
        return updates_of(self.row.measured)


_SLOW = ("slow_worker", "slow_factor", "slow_ms")
"""Fields of a spec."""


def _spec(row: ArmRow) -> Mapping[str, Any]:
    return row.measured[0].spec


def job_of(row: ArmRow) -> tuple[Any, ...]:
    """What two arms have in common that differ in the slow worker only."""
    return row.folder, row.hosts, _without(_spec(row), _SLOW)


def _work_of(row: ArmRow) -> tuple[Any, ...]:
    """What two arms have in common that do the same work on as many devices."""
    return row.folder, row.devices, _without(_spec(row), DISTRIBUTION)


def _without(spec: Mapping[str, Any], names: Sequence[str]) -> str:
    return identity({key: value for key, value in spec.items() if key not in (*names, "seed")})


def _slowness(row: ArmRow) -> tuple[float, float] | None:
    """Factor of the gradients and extra milliseconds per step; None: no worker is slow."""
    spec = _spec(row)
    how = float(spec.get("slow_factor", 1.0)), float(spec.get("slow_ms", 0.0))
    return None if spec.get("slow_worker") is None or how == (1.0, 0.0) else how


def slowed_arms(rows: Sequence[ArmRow]) -> list[Slowed]:
    """The measured arms with a slow worker whose job was also measured without one."""
    steady: dict[tuple[Any, ...], ArmRow] = {}
    for row in rows:
        if _slowness(row) is None:
            steady.setdefault(job_of(row), row)
    pairs = [(row, steady[job_of(row)]) for row in rows if _slowness(row) and job_of(row) in steady]
    compared = statistics_of(rows).compare([(row.label, other.label) for row, other in pairs])
    return [_of_pair(row, each, rows, steady) for (row, _), each in zip(pairs, compared, strict=True)]


def _of_pair(
    row: ArmRow, comparison: Comparison, rows: Sequence[ArmRow], steady: Mapping[tuple[Any, ...], ArmRow]
) -> Slowed:
    (factor, extra_ms), workers, before = _slowness(row) or (1.0, 0.0), row.devices or 1, steady[job_of(row)]
    step_s = (row.batch_global or 0) / (before.images_per_s or 1.0)
    alone = next((other for other in rows if _trains_alone(other, row) and job_of(other) in steady), None)
    by_itself = (factor - 1) * step_s + extra_ms / 1000
    extra_s = by_itself if alone is None else _extra_s(alone, steady[job_of(alone)])
    slowest = step_s / (step_s + extra_s)
    average = (workers - 1 + slowest) / workers
    return Slowed(row, before, factor, extra_ms, comparison, slowest, average, alone.label if alone else "")


def _extra_s(alone: ArmRow, steady: ArmRow) -> float:
    """Seconds that a step of the slow worker takes longer."""
    batch, slow = alone.batch_per_replica or 0, int(_spec(alone)["slow_worker"])
    return max(0.0, batch / _speeds(alone)[slow] - batch / _speeds(steady)[slow])


def _trains_alone(other: ArmRow, row: ArmRow) -> bool:
    same = other.exchange is Exchange.NONE and _slowness(other) == _slowness(row)
    return same and _work_of(other) == _work_of(row)


def _speeds(row: ArmRow) -> list[float]:
    """Examples per second of each worker, over all turns."""
    tasks: dict[int, list[float]] = {}
    for record in row.measured:
        for rank in record.ranks:
            sums = tasks.setdefault(int(rank.task.rpartition("-")[2]), [0.0, 0.0])
            sums[0] += sum(window.examples for window in rank.windows)
            sums[1] += sum(window.elapsed_s for window in rank.windows)
    return [examples / seconds for _, (examples, seconds) in sorted(tasks.items())]
