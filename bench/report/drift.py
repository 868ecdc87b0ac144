"""How much all arms together became faster or slower from the first to the last round. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tfdist.bench.disturbance import LIMIT
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import FEWEST_ROUNDS

_NOISES = 2
"""A drift exceeds this many standard errors: two arms without any differ by more than LIMIT in every third bench."""


@dataclass(frozen=True)
class Drift:
    """A change of images/s over the rounds of arms that took turns."""

    first: int
    last: int
    change: float
    """Change from the first to the last round on the straight line through all rounds; 0.1: 10 % faster."""
    arms: tuple[str, ...]
    """The labels of those that changed by more than LIMIT in this direction."""


def drifts_of(rows: Sequence[ArmRow]) -> Iterator[Drift]:
    """Those over LIMIT, of each folder and group."""
    groups = dict.fromkeys((row.folder, block.group) for row in rows for block in row.rates)
    for folder, group in groups:
        logs = {row.label: _logs(row, group) for row in rows if row.folder == folder}
        drift = _drift({label: rounds for label, rounds in logs.items() if rounds})
        if drift and abs(drift.change) > LIMIT:
            yield drift


def _logs(row: ArmRow, group: int) -> Mapping[int, float]:
    """Log images/s of each round."""
    return {block.round: math.log(rate) for block, rate in row.rates.items() if block.group == group}


def _drift(logs: Mapping[str, Mapping[int, float]]) -> Drift | None:
    """None: too few arms with all rounds, or no more than noise."""
    rounds = sorted(set().union(*logs.values()))
    complete = {label: [own[number] for number in rounds] for label, own in logs.items() if len(own) == len(rounds)}
    if len(complete) < 2 or len(rounds) < FEWEST_ROUNDS:
        return None
    blocks = [fmean(turns) for turns in zip(*complete.values(), strict=True)]
    change = _change(rounds, blocks)
    if abs(change) <= _NOISES * _error(rounds, blocks, list(complete.values())):
        return None
    arms = [label for label, own in complete.items() if math.copysign(1, change) * _change(rounds, own) > LIMIT]
    return Drift(rounds[0], rounds[-1], math.expm1(change), tuple(arms))


def _change(rounds: Sequence[int], logs: Sequence[float]) -> float:
    """Change from the first to the last round, on the line of least squares."""
    middle = fmean(rounds)
    slope = sum((x - middle) * y for x, y in zip(rounds, logs, strict=True)) / _spread(rounds)
    return slope * (rounds[-1] - rounds[0])


def _error(rounds: Sequence[int], blocks: Sequence[float], arms: Sequence[Sequence[float]]) -> float:
    """The standard error of `_change(rounds, blocks)`, from the rest of log images/s = arm + round + rest."""
    overall = fmean(blocks)
    squares = sum(
        (log - fmean(own) - block + overall) ** 2 for own in arms for log, block in zip(own, blocks, strict=True)
    )
    variance = squares / ((len(arms) - 1) * (len(rounds) - 1))
    return math.sqrt(variance / len(arms) / _spread(rounds)) * (rounds[-1] - rounds[0])


def _spread(rounds: Sequence[int]) -> float:
    middle = fmean(rounds)
    return sum((number - middle) ** 2 for number in rounds)
