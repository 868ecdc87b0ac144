"""The runs of a bench and their order. Pure."""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil


@dataclass(frozen=True, order=True)
class PlannedRun:
    """One run of one arm."""

    round: int
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


def incarnations(
    plan: Sequence[PlannedRun], number: int, done: Collection[PlannedRun] = (), without: Collection[str] = ()
) -> Iterator[tuple[PlannedRun, ...]]:
    """The runs that are left, by the start of the processes that they share.

    The rounds of `plan` are spread evenly over `number` incarnations, in order; those with nothing left are skipped.
    """
    left = remaining(plan, done, without)
    rounds = max((run.round for run in plan), default=0)
    ends = [ceil(rounds * index / number) for index in range(number + 1)]
    for start, end in pairwise(ends):
        runs = tuple(run for run in left if start < run.round <= end)
        if runs:
            yield runs


def extended(rounds: int, number: int, total: int) -> int:
    """The number of incarnations for `total` rounds, if `rounds` were planned in `number` of them.

    Added rounds have incarnations of their own, of about the same length.
    """
    each = ceil(rounds / number)
    return ceil(total / each) if total <= rounds else number + ceil((total - rounds) / each)
