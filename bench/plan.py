"""The runs of a bench and their order. Pure."""

import random
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from tfdist.launch.typed_json import PositiveInt


@dataclass(frozen=True, order=True)
class PlannedRun:
    """One run of one arm."""

    round: PositiveInt
    """Counted from 1."""
    arm: str


def interleave(arms: Sequence[str], rounds: int, seed: int) -> tuple[PlannedRun, ...]:
    """Every arm once a round, each round in another order, so that drift of the machine affects all arms alike.

    A round's order depends only on the arms, its number and the seed: a longer bench starts like a shorter one.
    """
    plan: list[PlannedRun] = []
    for number in range(1, rounds + 1):
        order = list(arms)
        random.Random(f"{seed}/{number}").shuffle(order)
        plan += [PlannedRun(number, arm) for arm in order]
    return tuple(plan)


def remaining(
    plan: Sequence[PlannedRun], done: Collection[PlannedRun], without: Collection[str] = ()
) -> tuple[PlannedRun, ...]:
    """The runs of `plan` that are not done, except those of the arms `without`."""
    return tuple(run for run in plan if run not in done and run.arm not in without)


def beside(runs: Sequence[PlannedRun], plan: Sequence[PlannedRun], baseline: str) -> tuple[PlannedRun, ...]:
    """These runs of `plan`, and those of the baseline in the same rounds: only turns beside each other compare arms."""
    wanted = {*runs, *(PlannedRun(run.round, baseline) for run in runs)}
    return tuple(run for run in plan if run in wanted)


def spread(rounds: int, number: int) -> tuple[int, ...]:
    """The last round of each of `number` incarnations: all of about the same length."""
    return tuple(ceil(rounds * index / number) for index in range(1, number + 1))


def incarnations(left: Sequence[PlannedRun], ends: Sequence[int]) -> Iterator[tuple[PlannedRun, ...]]:
    """The runs that are left, by the start of the processes that they share; `ends`: as `spread`.

    Those with nothing left are skipped.
    """
    for before, end in pairwise((0, *ends)):
        runs = tuple(run for run in left if before < run.round <= end)
        if runs:
            yield runs


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
