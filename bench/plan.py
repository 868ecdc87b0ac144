"""Which runs a bench makes, and in which order: pure."""

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
    """Every arm once a round, each round in an order of its own, so that the machine's drift hits all arms alike.

    The order depends on the arms, the round's number and the seed alone: a longer bench begins like a shorter one.
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
    """What is still to be run: not what is done, and nothing of the arms `without`."""
    return tuple(run for run in plan if run not in done and run.arm not in without)
