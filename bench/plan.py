"""The runs of a bench, their order, and how long they will take. Pure."""

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil
from typing import TypeVar

from tfdist.bench.suites.suite import Suite
from tfdist.jobs.tasks import task_count
from tfdist.launch.typed_json import PositiveInt
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice

_FORKED_S, _PROCESS_S = 1.0, 3.0
"""What each process adds to `Strategy.start_s`: a forked one, and one that is executed (`Templates`)."""
_GPU_S, _XLA_S = 4.0, 25.0
"""What compiling for GPUs, and XLA, add to the start of an arm: their share of the wall time in which six arms start on
an H200 with 16 cores."""


@dataclass(frozen=True)
class Costs:
    """What starts and turns take on a machine; by default as the table of strategies says."""

    starts: float = 1.0
    """Wall seconds of starts over the sum of `start_s` and the warm-up of their arms: several start at a time."""
    edge_s: float = 0.5
    """Seconds of a turn besides its timed windows: the release, a step that is not counted, and saving. With its share
    of turns that are repeated, and of the end of the processes, if it comes from a bench."""


BY_TABLE = Costs()

Item = TypeVar("Item")


@dataclass(frozen=True, order=True)
class PlannedRun:
    """One run of one arm."""

    round: PositiveInt
    """Counted from 1."""
    arm: str


def interleave(
    arms: Sequence[str], rounds: int, seed: int, pairs: Sequence[tuple[str, ...]] = ()
) -> tuple[PlannedRun, ...]:
    """Every arm once a round, each round in another order, so that drift of the machine affects all arms alike.

    The arms of a pair have their turns one after the other, in either order: between them the machine changes least.
    A round's order depends only on the arms, its number and the seed: a longer bench starts like a shorter one.
    """
    alone = [(arm,) for arm in arms if not any(arm in pair for pair in pairs)]
    return tuple(
        PlannedRun(number, arm)
        for number in range(1, rounds + 1)
        for group in _shuffled([*pairs, *alone], f"{seed}/{number}")
        for arm in _shuffled(group, f"{seed}/{number}/{group[0]}")
    )


def start_order(arms: Sequence[str], incarnation: int, seed: int) -> list[str]:
    """The arms in the order in which an incarnation starts them: another one in each, as a start may affect others."""
    return _shuffled(arms, f"{seed}/start {incarnation}")


def _shuffled(items: Sequence[Item], seed: str) -> list[Item]:
    order = list(items)
    random.Random(seed).shuffle(order)
    return order


def beside(
    runs: Sequence[PlannedRun], plan: Sequence[PlannedRun], partners: Mapping[str, str]
) -> tuple[PlannedRun, ...]:
    """These runs of `plan`, and those of their partners in the same rounds: only turns of a round compare arms."""
    wanted = {*runs, *(PlannedRun(run.round, partners[run.arm]) for run in runs)}
    return tuple(run for run in plan if run in wanted)


def spread(rounds: int, number: int) -> tuple[int, ...]:
    """The last round of each of `number` incarnations: all of about the same length."""
    return tuple(ceil(rounds * index / number) for index in range(1, number + 1))


def incarnations(left: Sequence[PlannedRun], ends: Sequence[int]) -> Iterator[tuple[PlannedRun, ...]]:
    """The runs that are left, in order of rounds, by the start of the processes that they share; `ends`: as `spread`.

    Starts with nothing left are skipped.
    """
    return (tuple(runs) for _, runs in groupby(left, key=lambda run: start_of(run.round, ends)))


def start_of(round: int, ends: Sequence[int]) -> int:
    """The incarnation that measures a round, counted from 0."""
    return bisect_left(ends, round)


def extended(ends: Sequence[int], total: int) -> tuple[int, ...]:
    """The last round of each incarnation, of `total` rounds instead of `ends[-1]`.

    A round stays in its incarnation. Added ones have incarnations of their own, of about the same length.
    """
    kept = tuple(min(end, total) for before, end in pairwise((0, *ends)) if before < total)
    added = total - kept[-1]
    return kept + tuple(kept[-1] + end for end in spread(added, ceil(added / ends[0])))


def start_s(choice: StrategyChoice, isolated: bool = False) -> float:
    """Wall seconds from the start of an arm's processes until they wait for their first turn.

    Args:
        choice: of the arm; a plain StrategyChoice: it runs the user's own program.
        isolated: its processes are not forked, as `Suite.isolated`.
    """
    process_s = _PROCESS_S if isolated or type(choice) is StrategyChoice else _FORKED_S
    compile_s = _GPU_S * choice.gpus + _XLA_S * (isinstance(choice, TrainingSpec) and choice.xla)
    return CATALOG[choice.strategy].start_s + process_s * task_count(choice) + compile_s


def seconds_left(
    incarnations: Iterable[Sequence[PlannedRun]],
    specs: Mapping[str, StrategyChoice],
    suite: Suite,
    costs: Costs = BY_TABLE,
) -> float:
    """Wall seconds that these incarnations will take.

    Args:
        incarnations: the runs that are left, by incarnation.
        specs: by arm.
        suite: how long a turn and a warm-up is.
        costs: of this machine.
    """
    total = 0.0
    for runs in incarnations:
        starts_s, _ = _costs_s(suite, {run.arm: specs[run.arm] for run in runs}, costs)
        total += starts_s + len(runs) * (suite.turn_s + costs.edge_s)
    return total


def fitting_starts(suite: Suite, specs: Mapping[str, StrategyChoice], seconds: float, costs: Costs = BY_TABLE) -> int:
    """The number of incarnations, at least 1, for about this time: as many of the suite's length as fit.

    If fewer fit than the suite has, they have fewer rounds each; only if not even one round fits, there are fewer.
    """
    starts_s, round_s = _costs_s(suite, specs, costs)
    full = seconds / (starts_s + ceil(suite.rounds / suite.incarnations) * round_s)
    return max(1, int(full), min(suite.incarnations, int(seconds / (starts_s + round_s))))


def _costs_s(suite: Suite, specs: Mapping[str, StrategyChoice], costs: Costs) -> tuple[float, float]:
    """Wall seconds of the starts of these arms, and of a round."""
    starts_s = sum(start_s(spec, suite.isolated) + suite.warmup_s for spec in specs.values())
    return costs.starts * starts_s, max(1, len(specs)) * (suite.turn_s + costs.edge_s)


def fitting_rounds(suite: Suite, specs: Mapping[str, StrategyChoice], seconds: float, costs: Costs = BY_TABLE) -> int:
    """The number of rounds, at least 1, that are measured in about this time with the suite's incarnations."""
    starts_s, round_s = _costs_s(suite, specs, costs)
    if suite.isolated:
        return max(1, int(seconds / (round_s + starts_s)))
    return max(1, int((seconds - suite.incarnations * starts_s) / round_s))


@dataclass
class Spent:
    """Seconds that the starts and turns of a bench took so far."""

    starts: int = 0
    starts_s: float = 0.0
    turns: int = 0
    turns_s: float = 0.0

    def add_start(self, seconds: float, again: bool = False) -> None:
        """The arms of an incarnation are ready; `again`: a further group of them."""
        self.starts += not again
        self.starts_s += seconds

    def add_turn(self, seconds: float) -> None:
        """A turn has ended."""
        self.turns += 1
        self.turns_s += seconds

    def left_s(self, starts: int, turns: int, turn_s: float) -> float:
        """Seconds that more starts and turns will take, as the mean ones so far; before the first, `turn_s` each."""
        each_s = self.turns_s / self.turns if self.turns else turn_s + BY_TABLE.edge_s
        return starts * self.starts_s / max(1, self.starts) + turns * each_s
