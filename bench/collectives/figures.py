"""The figures of a sweep: time of one operation for each arm and size, its noise, the fastest packs. Pure.

The figure of a start is the median over its rounds, so one disturbed turn of three does not move it. That of an arm is
the geometric mean over its starts, which all intervals rest on (statistics.py).
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean, geometric_mean, median
from typing import TypeVar

from tfdist.bench.collectives.results import Line, Sweep
from tfdist.bench.design import Block
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict, Comparison, Interval, Statistics
from tfdist.launch.quantities import size_text
from tfdist.launch.text import listed
from tfdist.strategies.options import GradientDtype

_LEAST_SLOWDOWN = math.log(1.05)
_DEVIATIONS = 5 * 1.4826
"""Median absolute deviations in five standard deviations of a normal distribution."""
_Key = TypeVar("_Key", bound=Hashable)


def grouped(lines: Iterable[Line], key: Callable[[Line], _Key]) -> dict[_Key, list[Line]]:
    """The lines by key, in the order in which keys appear."""
    groups: dict[_Key, list[Line]] = {}
    for line in lines:
        groups.setdefault(key(line), []).append(line)
    return groups


def _case(line: Line) -> tuple[int, int, int, int]:
    return line.ranks, line.tensors, line.bytes, line.pack_bytes or 0


def _seconds(lines: Iterable[Line]) -> dict[Block, float]:
    """The geometric mean over the sizes of each turn. Those of a start are moved so that their mean is their median.

    For `Statistics`, which averages the turns of a start.
    """
    by_turn = grouped(lines, lambda line: Block(1, line.round, line.incarnation))
    turns = {turn: geometric_mean(line.seconds for line in of_turn) for turn, of_turn in by_turn.items()}
    logs: dict[int, list[float]] = {}
    for turn, seconds in turns.items():
        logs.setdefault(turn.incarnation, []).append(math.log(seconds))
    moves = {start: median(of_start) - fmean(of_start) for start, of_start in logs.items()}
    return {turn: seconds * math.exp(moves[turn.incarnation]) for turn, seconds in turns.items()}


def disturbed_turns(lines: Sequence[Line]) -> Iterator[str]:
    """A sentence for each turn in which the sizes were slow together: one finding, however many sizes there are.

    The slowdown of a turn is the median over sizes of its time over the arm's median of that size. It exceeds that of
    the arm's median turn by over 5 % and by five robust standard deviations.
    """
    for arm, of_arm in grouped(lines, attrgetter("arm")).items():
        usual = {case: median(line.seconds for line in group) for case, group in grouped(of_arm, _case).items()}
        rounds = grouped(of_arm, attrgetter("round")).items()
        slowdowns = {n: median(math.log(line.seconds / usual[_case(line)]) for line in group) for n, group in rounds}
        middle = median(slowdowns.values())
        limit = max(_DEVIATIONS * median(abs(each - middle) for each in slowdowns.values()), _LEAST_SLOWDOWN)
        for number, slowdown in slowdowns.items():
            if slowdown - middle > limit:
                times = f"{math.exp(slowdown - middle):.2f} times"
                yield f"{arm}, round {number}: {times} as long as its other rounds (median over sizes)"


def noise_sentences(sweep: Sweep) -> Iterator[str]:
    """A sentence for each two arms that do the same (A/A): one ratio over all sizes, which are disturbed together."""
    arms = grouped(sweep.lines, attrgetter("arm"))
    for arm, other in sweep.header.same_arms:
        common = set(map(_case, arms.get(arm, ()))) & set(map(_case, arms.get(other, ())))
        if common:
            lines = {name: [line for line in arms[name] if _case(line) in common] for name in (arm, other)}
            (found,) = Statistics({name: _seconds(lines[name]) for name in lines}).compare([(arm, other)])
            pairs = zip(_figures(lines[arm]), _figures(lines[other]), strict=True)
            sizes = [ours.line.seconds / theirs.line.seconds for ours, theirs in pairs]
            differ = "" if found.verdict is ArmVerdict.CANNOT_TELL else ": do not trust differences of this size"
            yield (
                f"Noise (A/A): {arm} takes {found} the time of {other}, which does the same, and "
                f"{min(sizes):.2f} to {max(sizes):.2f} times at single sizes{differ}."
            )


def pack_sentences(lines: Sequence[Line]) -> Iterator[str]:
    """A sentence for each arm that exchanged the same gradients in packs of several sizes, against one pack.

    The comparisons of all arms share one error rate.
    """
    lists = sorted((line for line in lines if line.tensors > 1), key=_case)
    arms = list(dict.fromkeys(line.arm for line in lists))
    rates = {
        # a group of its own: only the packs of one arm share the luck of its starts
        pack: {replace(turn, group=arms.index(pack[0])): 1 / seconds for turn, seconds in _seconds(group).items()}
        for pack, group in grouped(lists, lambda line: (line.arm, line.pack_bytes)).items()
    }
    pairs = [((arm, pack), (arm, None)) for arm, pack in rates if pack and (arm, None) in rates]
    statistics = Statistics({str(pack): turns for pack, turns in rates.items()})
    compared = statistics.compare([(str(pack), str(one)) for pack, one in pairs])
    for arm in arms:
        found = {size_text(pack): each for ((of, pack), _), each in zip(pairs, compared, strict=True) if of == arm}
        if found and min(each.rounds for each in found.values()) < FEWEST_ROUNDS:
            yield f"{arm}: fewer than {FEWEST_ROUNDS} rounds, so pack sizes are not compared."
        elif found:
            yield f"{arm}: {_result(found)}."


def _result(against_one: Mapping[str, Comparison]) -> str:
    faster = {pack: each for pack, each in against_one.items() if each.verdict is ArmVerdict.FASTER}
    slower = {pack: each for pack, each in against_one.items() if each.verdict is ArmVerdict.SLOWER}
    if faster:
        best = max(faster, key=lambda pack: faster[pack].ratio)
        return f"packs of {best} exchange the gradients fastest, {faster[best]} the rate of one pack"
    if len(slower) == len(against_one):
        nearest = max(slower, key=lambda pack: slower[pack].ratio)
        return f"one pack is the fastest; packs of {nearest}, the next, have {slower[nearest]} its rate"
    rest = [pack for pack in against_one if pack not in slower]
    measurably = f"; packs of {listed(slower)} are measurably slower" if slower else ""
    return f"no measurable difference between one pack and packs of {listed(rest)}{measurably}"


@dataclass(frozen=True)
class SizeFigure:
    """One row of the table: an arm and a size."""

    line: Line
    """Its first measurement, but with the seconds of all: the geometric mean over starts of the median over rounds."""
    interval: Interval | None
    """Interval of the seconds. None: fewer than FEWEST_ROUNDS."""
    rounds: int
    starts: int
    wrong: int
    """Wrong elements in all rounds together."""

    @property
    def count(self) -> int:
        """Elements of `bytes`."""
        return self.line.bytes // GradientDtype(self.line.dtype).item_bytes

    @property
    def busbw_interval(self) -> Interval | None:
        """GB/s."""
        if self.interval is None:
            return None
        low, high = (replace(self.line, seconds=limit).busbw for limit in (self.interval.high, self.interval.low))
        return Interval(low, high, self.interval.level)


def figures_of(sweep: Sweep) -> tuple[SizeFigure, ...]:
    """A figure for each arm in the order of its first turn, by size, then by packs."""
    return tuple(figure for lines in grouped(sweep.lines, attrgetter("arm")).values() for figure in _figures(lines))


def _figures(of_arm: Sequence[Line]) -> Iterator[SizeFigure]:
    for _, lines in sorted(grouped(of_arm, _case).items()):
        # alone: arms differ tenfold in noise, which `Statistics` would mix
        figure = Statistics({"": _seconds(lines)}).figure("")
        assert figure is not None
        starts = len({line.incarnation for line in lines})
        wrong = sum(line.wrong for line in lines)
        line = replace(lines[0], seconds=figure.images_per_s)
        yield SizeFigure(line, figure.interval, figure.rounds, starts, wrong)
