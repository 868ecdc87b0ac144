"""What arms have learned after each turn, and the updates of a parameter-server's workers by staleness. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import accumulate, groupby, pairwise, zip_longest
from math import nan
from statistics import geometric_mean

from tfdist.bench.until import accuracy_of
from tfdist.models.record import Record
from tfdist.models.throughput import exchange, throughput
from tfdist.strategies.catalog import Exchange


@dataclass(frozen=True)
class Staleness:
    """Number of updates that others applied between a worker's read and its own update."""

    mean: float
    p95: int
    """Staleness that at most 5 % of the updates exceed."""
    largest: int


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
        counts = [sum(column) for column in zip_longest(*self.counts, fillvalue=0)]
        total = sum(counts)
        if not total:
            return None
        mean = sum(value * count for value, count in enumerate(counts)) / total
        p95 = next(value for value, below in enumerate(accumulate(counts)) if below >= 0.95 * total)
        largest = max(value for value, count in enumerate(counts) if count)
        return Staleness(mean, p95, largest)


def updates_of(records: Sequence[Record]) -> Updates | None:
    """All turns together; None if updates were not counted."""
    turns = [task["updates"] for record in records for task in record.observed.values() if "updates" in task]
    if not turns:
        return None
    workers = [zip_longest(*rows, fillvalue=0) for rows in zip(*turns, strict=True)]
    return Updates(tuple(tuple(map(sum, columns)) for columns in workers))


@dataclass(frozen=True)
class Point:
    """One evaluation on the held-out examples."""

    examples: float
    """Examples that the model was trained with: of all workers together, unless each trains a model of its own."""
    seconds: float
    """Seconds in which these examples are trained, at the speed of the turns; without starts and evaluations."""
    loss: float
    accuracy: float
    """0..1."""


@dataclass(frozen=True)
class Curve:
    """One training from its start on."""

    task: str
    seed: int
    points: tuple[Point, ...]

    def reach(self, accuracy: float) -> Point | None:
        """When it first had this accuracy, between the two evaluations by linear interpolation; None: never."""
        if self.points and self.points[0].accuracy >= accuracy:
            return self.points[0]
        for before, point in pairwise(self.points):
            if point.accuracy >= accuracy:
                share = (accuracy - before.accuracy) / (point.accuracy - before.accuracy)
                pairs = zip(astuple(before), astuple(point), strict=True)
                return replace(Point(*(one + share * (other - one) for one, other in pairs)), accuracy=accuracy)
        return None


def curves_of(records: Sequence[Record]) -> tuple[Curve, ...]:
    """The trainings of one arm whose turns were evaluated: one for each seed.

    A training that was interrupted, or the baseline beside each group of arms, starts again with its seed: the start
    that learned most counts, and of equal ones the last. A program of the user's own has no known seed; its first round
    stands for it. Without exchange each task trains a model of its own; otherwise the first one speaks for all.
    """
    measured = sorted(filter(_tasks, records), key=lambda record: (record.incarnation, record.order))
    starts = [list(turns) for _, turns in groupby(measured, key=lambda record: record.incarnation)]
    starts.sort(key=lambda turns: accuracy_of(turns[-1].observed) or 0.0)
    best_with_seed = {turns[0].spec.get("seed", turns[0].round): turns for turns in starts}
    curves = []
    for seed, turns in best_with_seed.items():
        for task in _tasks(turns[0]):
            examples = 0.0
            seconds = 0.0
            points = []
            for turn in turns:
                result = turn.observed[task]["held_out"]
                seconds += (result["examples"] - examples) / _rate(turn, task)
                examples = result["examples"]
                loss = nan if result["loss"] is None else result["loss"]  # JSON has no NaN
                points.append(Point(examples, seconds, loss, result["accuracy"]))
            curves.append(Curve(task, seed, tuple(points)))
    return tuple(curves)


def _tasks(record: Record) -> list[str]:
    tasks = sorted(task for task, observed in record.observed.items() if "held_out" in observed)
    return tasks if exchange(record.spec) is Exchange.NONE else tasks[:1]


def _rate(turn: Record, task: str) -> float:
    """Examples per second of the model that this task evaluates."""
    if exchange(turn.spec) is not Exchange.NONE:
        return throughput(turn)
    windows = next(rank.windows for rank in turn.ranks if rank.task == task)
    return sum(window.examples for window in windows) / sum(window.elapsed_s for window in windows)


@dataclass(frozen=True)
class AccuracyReach:
    """Where the trainings of one arm reached an accuracy, by seed."""

    examples: Mapping[int, float]
    seconds: Mapping[int, float]
    seeds: int
    """Number of seeds, those that never reached it included."""

    @property
    def complete(self) -> bool:
        """Every seed reached it: otherwise a mean over the others would flatter the arm."""
        return 0 < len(self.examples) == self.seeds


def reached(curves: Sequence[Curve], accuracy: float) -> AccuracyReach:
    """The geometric mean of several models with one seed; a seed counts if all of its models reached it."""
    examples, seconds = {}, {}
    seeds = list(dict.fromkeys(curve.seed for curve in curves))
    for seed in seeds:
        points = [curve.reach(accuracy) for curve in curves if curve.seed == seed]
        found = [point for point in points if point is not None]
        if len(found) == len(points):
            examples[seed] = geometric_mean(point.examples for point in found)
            seconds[seed] = geometric_mean(point.seconds for point in found)
    return AccuracyReach(examples, seconds, len(seeds))
