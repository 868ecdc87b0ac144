"""The updates of a parameter-server's workers, from their counts by staleness. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tfdist.models.record import Record


@dataclass(frozen=True)
class Staleness:
    """Number of updates that others applied between a worker's read and its own update."""

    mean: float
    p95: int
    """Staleness that at most 5 % of the updates exceed."""
    largest: int
    updates: int


@dataclass(frozen=True)
class Updates:
    """The counted updates of one arm."""

    counts: tuple[tuple[int, ...], ...]
    """Number of updates of each worker with staleness 0, 1, and so on."""

    @property
    def shares(self) -> tuple[float, ...]:
        """Each worker's share of all updates, 0..1."""
        sums = [sum(row) for row in self.counts]
        return tuple(one / sum(sums) for one in sums) if any(sums) else ()

    @property
    def staleness(self) -> Staleness | None:
        """Staleness of all updates; None without any."""
        return _staleness([sum(column) for column in zip_longest(*self.counts, fillvalue=0)])

    def of_worker(self, worker: int) -> Staleness | None:
        """Staleness of one worker's updates."""
        return _staleness(self.counts[worker])


def _staleness(counts: Sequence[int]) -> Staleness | None:
    total = sum(counts)
    if not total:
        return None
    mean = sum(value * count for value, count in enumerate(counts)) / total
    below, p95 = counts[0], 0
    while below < 0.95 * total:
        p95 += 1
        below += counts[p95]
    largest = max(value for value, count in enumerate(counts) if count)
    return Staleness(mean, p95, largest, total)


def updates_of(records: Sequence[Record]) -> Updates | None:
    """All turns together; None if updates were not counted."""
    turns = [task["updates"] for record in records for task in record.observed.values() if "updates" in task]
    if not turns:
        return None
    workers = [zip_longest(*rows, fillvalue=0) for rows in zip(*turns, strict=True)]
    return Updates(tuple(tuple(map(sum, columns)) for columns in workers))
