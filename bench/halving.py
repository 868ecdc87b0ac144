"""Successive halving: many candidates in a few rounds, the faster half of them in a few more. Pure.

Source: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization" (2016).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

STAGE_ROUNDS = 3
"""Rounds of each stage but the last."""

Round = TypeVar("Round")


def stages(candidates: int) -> Iterator[int]:
    """The number of candidates in each stage; the last stage compares one with the default."""
    while candidates > 1:
        yield candidates
        candidates = math.ceil(candidates / 2)
    yield candidates


def faster_half(rates: Mapping[str, Mapping[Round, float]], default: str, candidates: Sequence[str]) -> tuple[str, ...]:
    """The faster half of `candidates`, rounded up, in their order.

    Args:
        rates: images/s of each arm and round. Candidates without one of the default's rounds are dropped.
        default: their baseline.
        candidates: without the default.
    """
    rounds = rates[default].keys()
    complete = [arm for arm in candidates if rounds <= rates.get(arm, {}).keys()]
    means = {arm: fmean(math.log(rates[arm][each]) for each in rounds) for arm in complete}
    kept = sorted(complete, key=lambda arm: -means[arm])[: math.ceil(len(candidates) / 2)]
    return tuple(arm for arm in complete if arm in kept)
