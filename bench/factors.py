"""The combinations of a [matrix] that a bench need not measure: predicted from the effects of their factors. Pure.

The model is a main-effects (additive) one, as in fractional factorial designs (Box, Hunter and Hunter, "Statistics for
Experimenters", 2005): the logarithm of a combination's throughput is the sum of an effect of its value of each list.
It is fitted by least squares to what was measured. It is often wrong: bfloat16 gains less where the exchange is what
takes time. So it only decides what is measured next: what may be the fastest, with room for its error, and a random
sample as a check. A combination that was only predicted is never named the fastest.

A bench measures `screen` in its first start, and after each start adds what `candidates` returns. How often that leaves
the fastest one out is simulated in lab/calibrate_factors.py.
"""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, log, log1p, sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from tfdist.bench.suites.arm import Arm

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REACH = 0.15
"""A combination is measured if its prediction is at most this share slower than the best arm."""
MARGIN = 0.10
"""A combination that is this share faster than its prediction refutes the model; from 5 to 15 % it changes little."""
CHECKS = 4
"""Combinations out of reach that are measured as a check. With 3, up to 3 % of simulated benches missed the fastest."""
WORTH = 0.5
"""A combination whose prediction is below this share of the best arm is not measured: no interaction doubles it."""
FEWEST = 24
"""A matrix of fewer combinations is measured whole: its screen and the checks would be most of it."""
DEFAULT_ERROR = 0.10
"""Standard error of a predicted logarithm before any was measured; later it counts as one of the misses."""
_NEGLIGIBLE = 1e-6
"""A row that differs less from a sum of others says nothing new."""


@dataclass(frozen=True)
class Prediction:
    """The throughput of a combination that was not measured."""

    log: float
    """Natural logarithm of images/s."""
    error: float
    """Its standard error: the root mean square of DEFAULT_ERROR and all `misses`."""


def screen(arms: Sequence[Arm]) -> tuple[str, ...]:
    """Of the arms that can run, those of the first start, in their order: they tell the effect of every value.

    Each arm that is not of a matrix; and of a matrix the combinations that differ from the first value in at most one
    list, others only where those are missing. A matrix of fewer than FEWEST combinations is all in it.
    """
    large = [matrix for matrix in _matrices(arms) if len(matrix.levels) >= FEWEST]
    omitted = {name for matrix in large for name in matrix.levels.keys() - matrix.spanning(matrix.levels)}
    return tuple(arm.name for arm in arms if arm.name not in omitted)


def predict(arms: Sequence[Arm], logs: Mapping[str, float]) -> Mapping[str, Prediction]:
    """The combinations that were not measured, without those that have a value of unknown effect.

    Args:
        arms: as for `screen`.
        logs: natural logarithm of images/s of each arm that was measured, from all starts so far.
    """
    error = sqrt(fmean(miss * miss for miss in (DEFAULT_ERROR, *misses(arms, logs).values())))
    return {name: Prediction(value, error) for name, value in _predicted(arms, logs).items()}


def _predicted(arms: Sequence[Arm], logs: Mapping[str, float]) -> dict[str, float]:
    fits = [matrix.fit(matrix.measured(logs), matrix.levels.keys() - logs.keys(), logs) for matrix in _matrices(arms)]
    return {name: value for fit in fits for name, value in fit.items()}


def misses(arms: Sequence[Arm], logs: Mapping[str, float]) -> Mapping[str, float]:
    """Log of the measured throughput over the predicted one, of each combination that the screen does not need.

    The prediction is that of the screen alone, so that it does not contain what it is compared with.
    """
    found: dict[str, float] = {}
    for matrix in _matrices(arms):
        used = matrix.spanning(matrix.measured(logs))
        found |= matrix.fit(used, set(matrix.measured(logs)).difference(used), logs)
    return {arm.name: logs[arm.name] - found[arm.name] for arm in arms if arm.name in found}


def holds(arms: Sequence[Arm], logs: Mapping[str, float]) -> bool:
    """Whether no measured combination is faster than its prediction by more than MARGIN.

    One that is slower is no reason to measure others: they are then further from the best than predicted.
    """
    return max(misses(arms, logs).values(), default=0.0) <= log1p(MARGIN)


def candidates(
    arms: Sequence[Arm],
    logs: Mapping[str, float],
    seed: int,
    rivals: Collection[str] | None = None,
    reach: float = REACH,
    checks: int = CHECKS,
) -> tuple[str, ...]:
    """The combinations to measure next, in the order of the arms; empty: the others stay predictions.

    Those of `rivals` whose prediction is within `reach` of the best arm, measured or predicted, and a random sample of
    those between there and WORTH; if the model does not hold, all down to WORTH. Besides those without a prediction, as
    far as they make others possible.

    Args:
        arms: those that can run, without those that failed.
        logs: as for `predict`.
        seed: of the suite; the same sample follows from the same seed.
        rivals: names of the arms of which one will be called the fastest; None, or none of `arms`: all.
        checks: size of the sample, of all starts together.
    """
    names = [arm.name for arm in arms]
    compared = set(names).intersection(names if rivals is None else rivals) or set(names)
    predicted = _predicted(arms, logs)
    best = max((value for name, value in (predicted | dict(logs)).items() if name in compared), default=0.0)
    # of measured ones the prediction from before, so that a check counts as one
    values = predicted | {name: logs[name] - miss for name, miss in misses(arms, logs).items()}
    worth = [name for name in names if name in compared and values.get(name, -inf) >= best + log(WORTH)]
    floor = best + log(1 - reach if holds(arms, logs) else WORTH)
    chosen = {name for name in worth if values[name] >= floor}
    sample = sorted(set(worth) - chosen, key=lambda name: (name not in logs, random.Random(f"{seed}/{name}").random()))
    chosen.update(sample[:checks])
    for matrix in _matrices(arms):
        unknown = [name for name in matrix.levels if name not in predicted and name not in logs]
        chosen.update(matrix.spanning(unknown, matrix.measured(logs)))
    return tuple(name for name in names if name in chosen and name not in logs)


def can_wait(arms: Sequence[Arm], logs: Mapping[str, float], joining: Collection[str]) -> set[str]:
    """Measured arms more than REACH slower than the best prediction of those that are `joining`.

    They are not measured beside these: if the prediction holds they are slower for sure afterwards, and if it does not
    they are measured again.

    Args:
        arms: as for `predict`.
        logs: as for `predict`.
        joining: the arms that are measured from now on.
    """
    predicted = _predicted(arms, logs)
    best = max((predicted[name] for name in joining if name in predicted), default=-inf)
    return {name for name, value in logs.items() if value < best + log(1 - REACH)}


@dataclass(frozen=True)
class _Matrix:
    """Combinations of the values of the same lists."""

    levels: Mapping[str, tuple[str, ...]]
    """By name: the value of each list."""

    def measured(self, logs: Mapping[str, float]) -> list[str]:
        return [name for name in self.levels if name in logs]

    def spanning(self, names: Iterable[str], known: Iterable[str] = ()) -> tuple[str, ...]:
        """Those of `names` that tell, beside the `known`, all effects that they can: those most like the first arm."""
        import numpy as np

        first = next(iter(self.levels.values()))
        nearest = sorted(names, key=lambda name: sum(map(str.__ne__, self.levels[name], first)))
        basis = np.empty((0, self._rows[next(iter(self.levels))].size))
        chosen = []
        for name in (*known, *nearest):
            rest = self._rows[name]
            for _ in range(2):  # the second time for the rounding errors of the first
                rest = rest - (basis @ rest) @ basis
            size = np.sqrt(rest @ rest)
            if size > _NEGLIGIBLE:
                basis = np.vstack([basis, rest / size])
                chosen.append(name)
        return tuple(name for name in chosen if name not in known)

    def fit(self, used: Collection[str], wanted: Collection[str], logs: Mapping[str, float]) -> dict[str, float]:
        """The logarithms of those of the `wanted` that follow from those of the `used`."""
        import numpy as np

        if not used or not wanted:
            return {}
        old, new = (np.array([self._rows[name] for name in names]) for names in (used, wanted))
        weights = new @ np.linalg.pinv(old, rcond=_NEGLIGIBLE)
        known = np.abs(weights @ old - new).max(axis=1) < _NEGLIGIBLE  # others have a value of unknown effect
        values = weights @ np.array([logs[name] for name in used])
        return {name: float(value) for name, value, each in zip(wanted, values, known, strict=True) if each}

    @cached_property
    def _rows(self) -> Mapping[str, "NDArray[np.float64]"]:
        """By name: 1 in the column of its value of each list, else 0."""
        import numpy as np

        columns = list(dict.fromkeys(place for values in self.levels.values() for place in enumerate(values)))
        rows = [[float(values[axis] == value) for axis, value in columns] for values in self.levels.values()]
        return dict(zip(self.levels, np.array(rows), strict=True))


def _matrices(arms: Iterable[Arm]) -> Iterable[_Matrix]:
    found: dict[tuple[str, ...], list[tuple[str, tuple[str, ...]]]] = {}
    for arm in arms:
        if axes := tuple(sorted(arm.levels)):
            found.setdefault(axes, []).append((arm.name, tuple(arm.levels[axis] for axis in axes)))
    return [_matrix(tuple(levels)) for levels in found.values()]


@lru_cache(maxsize=4)
def _matrix(levels: tuple[tuple[str, tuple[str, ...]], ...]) -> _Matrix:
    """Cached with its rows, for simulations."""
    return _Matrix(dict(levels))
