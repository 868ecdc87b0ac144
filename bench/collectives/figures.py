"""The figures of a sweep: for each arm and size the time of one operation over all rounds, with its interval. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tfdist.bench.collectives.results import Line, Sweep
from tfdist.bench.mean_log import interval_of_mean
from tfdist.bench.statistics import Interval
from tfdist.models.collectives.op import algbw, bus_factor
from tfdist.strategies.options import GradientDtype


@dataclass(frozen=True)
class SizeFigure:
    """One row of the table: an arm and a size."""

    line: Line
    """Its first measurement, for all that is the same in every round."""
    seconds: float
    """Seconds of one operation: the geometric mean over the rounds."""
    interval: Interval | None
    """Interval of `seconds`. None: fewer than FEWEST_ROUNDS."""
    rounds: int
    wrong: int
    """Wrong elements in all rounds together."""

    @property
    def count(self) -> int:
        """Elements of `bytes`."""
        return self.line.bytes // GradientDtype(self.line.dtype).item_bytes

    @property
    def algbw(self) -> float:
        """GB/s."""
        return algbw(self.line.bytes, self.seconds)

    @property
    def busbw(self) -> float:
        """GB/s."""
        return self.algbw * self._factor

    @property
    def busbw_interval(self) -> Interval | None:
        """GB/s."""
        if self.interval is None:
            return None
        size = self.line.bytes
        low, high = (algbw(size, seconds) * self._factor for seconds in (self.interval.high, self.interval.low))
        return Interval(low, high, self.interval.level)

    @property
    def _factor(self) -> float:
        return bus_factor(self.line.op, self.line.ranks)


def figures_of(sweep: Sweep) -> tuple[SizeFigure, ...]:
    """A figure for each arm in the order of its first turn, by size, then by packs."""
    arms = list(dict.fromkeys(line.arm for line in sweep.lines))

    def place(line: Line) -> tuple[int, ...]:
        return arms.index(line.arm), line.ranks, line.tensors, line.bytes, line.pack_bytes or 0

    ordered = sorted(sweep.lines, key=place)
    return tuple(_figure(list(lines)) for _, lines in groupby(ordered, key=place))


def _figure(lines: Sequence[Line]) -> SizeFigure:
    logs = [math.log(line.seconds) for line in lines]
    mean = math.fsum(logs) / len(logs)
    wrong = sum(line.wrong for line in lines)
    return SizeFigure(lines[0], math.exp(mean), interval_of_mean(logs, mean), len(lines), wrong)
