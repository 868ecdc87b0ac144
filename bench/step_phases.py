"""The stamps of a turn's steps -> where its time went on each rank. Pure.

A step of a rank has a local phase, until its gradients are ready, and a common one: it waits for the last rank, then
gradients are exchanged and applied. A collective ends at the same time on all ranks, so the rank that needs least from
ready to done did not wait: its time is the exchange, and what the others need beyond it is their waiting.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfdist.models.record import Record

if TYPE_CHECKING:
    from tfdist.bench.design import Array

NAME = "step_times"
"""Name in TurnRecord.observed."""


@dataclass(frozen=True)
class Rank:
    """One replica's steps of a turn."""

    name: str
    host: str
    ready: "Array"
    """Seconds at which its gradients were ready, by step."""
    done: "Array"
    """Seconds at which its update was done."""


@dataclass(frozen=True)
class StepPhases:
    """The steps of one turn, in milliseconds; each array has ranks x steps."""

    ranks: tuple[Rank, ...]
    gradient_bytes: int

    @cached_property
    def local_ms(self) -> "Array":
        """Time from the end of the step before to the local gradients."""
        return self._array([1000 * (rank.ready[1:] - rank.done[:-1]) for rank in self.ranks])

    @cached_property
    def after_ms(self) -> "Array":
        """Time from the local gradients to the end of the step."""
        return self._array([1000 * (rank.done[1:] - rank.ready[1:]) for rank in self.ranks])

    @property
    def exchange_ms(self) -> float:
        """Mean over steps of the shortest time from ready to done; the update of the variables is in it."""
        return float(self.after_ms.min(axis=0).mean())

    @property
    def update_ms(self) -> float:
        """Mean over steps and ranks of the time from ready to done: of ranks that do not exchange, the update."""
        return float(self.after_ms.mean())

    @property
    def waiting_ms(self) -> "Array":
        """Mean time that each rank waits for the last one."""
        waiting: Array = (self.after_ms - self.after_ms.min(axis=0)).mean(axis=1)
        return waiting

    @property
    def mean_local_ms(self) -> "Array":
        """Mean local phase of each rank."""
        mean: Array = self.local_ms.mean(axis=1)
        return mean

    @property
    def last(self) -> "Array":
        """The share of steps, 0..1, in which each rank was the last one."""
        import numpy as np

        last: Array = np.bincount(self.after_ms.argmin(axis=0), minlength=len(self.ranks)) / self.after_ms.shape[1]
        return last

    def _array(self, rows: "list[Array]") -> "Array":
        import numpy as np

        return np.array(rows, float)


def phases_of(record: Record) -> StepPhases | None:
    """The steps of a turn; None if it has no stamps of at least two common steps.

    Clocks of hosts differ. Each host's is shifted so that its steps end, in the median, when those of the first host
    do: all ranks leave a collective together.
    """
    found = {rank.task: record.observed.get(rank.task, {}).get(NAME) for rank in record.ranks}
    times = {task: each for task, each in found.items() if isinstance(each, Mapping) and _complete(each)}
    if not times or len(times) < len(found):
        return None
    steps = min(len(each["done"]) for each in times.values())
    if steps < 2:
        return None
    ranks = [rank for task in record.ranks for rank in _ranks(task.task, task.host, times[task.task], steps)]
    return StepPhases(_aligned(ranks), max(int(each.get("gradient_bytes", 0)) for each in times.values()))


def _complete(times: Mapping[str, Any]) -> bool:
    ready, done = times.get("ready") or [], times.get("done") or []
    return "start" in times and bool(ready and done) and all(len(row) == len(done) for row in ready)


def _ranks(task: str, host: str, times: Mapping[str, Any], steps: int) -> list[Rank]:
    import numpy as np

    done = times["start"] + np.array(times["done"][:steps], float)
    rows = [times["start"] + np.array(row[:steps], float) for row in times["ready"]]
    names = [task] if len(rows) == 1 else [f"{task}, replica {number}" for number in range(len(rows))]
    return [Rank(name, host, ready, done) for name, ready in zip(names, rows, strict=True)]


def _aligned(ranks: list[Rank]) -> tuple[Rank, ...]:
    import numpy as np

    first = {rank.host: rank for rank in reversed(ranks)}
    shift = {host: float(np.median(rank.done - ranks[0].done)) for host, rank in first.items()}
    return tuple(
        Rank(rank.name, rank.host, rank.ready - shift[rank.host], rank.done - shift[rank.host]) for rank in ranks
    )
