"""The runs of a bench and their order. Pure."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass


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
