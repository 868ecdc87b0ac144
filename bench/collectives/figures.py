"""The figures of a sweep: time of one operation for each arm and size, with its interval; the fastest packs. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tfdist.bench.collectives.results import Line, Sweep
from tfdist.bench.design import Block
from tfdist.bench.mean import interval_of_mean
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict, Comparison, Interval, Statistics
from tfdist.launch.quantities import size_text
from tfdist.launch.text import listed
from tfdist.models.collectives.spec import algbw, bus_factor
from tfdist.strategies.options import GradientDtype

_ONE = "one"


def pack_sentences(lines: Sequence[Line]) -> tuple[str, ...]:
    """A sentence for each arm that exchanged the same gradients in packs of several sizes, against one pack."""
    lists = sorted((line for line in lines if line.tensors > 1), key=lambda line: line.pack_bytes or 0)
    arms = dict.fromkeys(line.arm for line in lists)
    return tuple(filter(None, (_sentence(arm, [line for line in lists if line.arm == arm]) for arm in arms)))


def _sentence(arm: str, lines: Sequence[Line]) -> str:
    rates: dict[str, dict[Block, float]] = {}
    for line in lines:
        pack = _ONE if line.pack_bytes is None else size_text(line.pack_bytes)
        rates.setdefault(pack, {})[Block(1, line.round, 1)] = 1 / line.seconds
    packs = [pack for pack in rates if pack != _ONE]
    if _ONE not in rates or not packs:
        return ""
    if min(map(len, rates.values())) < FEWEST_ROUNDS:
        return f"{arm}: fewer than {FEWEST_ROUNDS} rounds, so pack sizes are not compared."
    compared = Statistics(rates).compare([(pack, _ONE) for pack in packs])
    return f"{arm}: {_result(dict(zip(packs, compared, strict=True)))}."


def _result(against_one: Mapping[str, Comparison]) -> str:
    faster = {pack: each for pack, each in against_one.items() if each.verdict is ArmVerdict.FASTER}
    slower = {pack: each for pack, each in against_one.items() if each.verdict is ArmVerdict.SLOWER}
    if faster:
        best = max(faster, key=lambda pack: faster[pack].ratio)
        return f"packs of {best} exchange the gradients fastest, {_ratio(faster[best])} the rate of one pack"
    if len(slower) == len(against_one):
        nearest = max(slower, key=lambda pack: slower[pack].ratio)
        return f"one pack is the fastest; packs of {nearest}, the next, have {_ratio(slower[nearest])} its rate"
    rest = [pack for pack in against_one if pack not in slower]
    measurably = f"; packs of {listed(slower)} are measurably slower" if slower else ""
    return f"no measurable difference between one pack and packs of {listed(rest)}{measurably}"


def _ratio(comparison: Comparison) -> str:
    interval = comparison.interval
    limits = "" if interval is None else f" ({interval.level:.0%} interval {interval.low:.2f} to {interval.high:.2f})"
    return f"{comparison.ratio:.2f} times{limits}"


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

    figures = []
    for _, group in groupby(sorted(sweep.lines, key=place), key=place):
        lines = list(group)
        logs = [math.log(line.seconds) for line in lines]
        mean = math.fsum(logs) / len(logs)
        wrong = sum(line.wrong for line in lines)
        figures.append(SizeFigure(lines[0], math.exp(mean), interval_of_mean(logs, mean), len(lines), wrong))
    return tuple(figures)
