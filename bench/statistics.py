"""From raw windows to figures: throughput, intervals over rounds, comparisons paired by round. Pure and seeded."""

import math
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import fmean, median, stdev

from tfdist.bench.record import RankRecord, Record, Window
from tfdist.strategies.catalog import CATALOG, Exchange, StrategyName

RESAMPLES = 2000
FEWEST_ROUNDS = 3
"""With fewer rounds there is no interval and no verdict."""


class Verdict(str, Enum):
    """What rounds can say about two arms."""

    FASTER = "faster"
    SLOWER = "slower"
    CANNOT_TELL = "cannot tell"

    __str__ = str.__str__


@dataclass(frozen=True)
class Interval:
    """The spread over rounds."""

    low: float
    high: float
    kind: str
    """`95 %`: a bootstrap interval of the median; `min..max`: there were too few rounds for one."""


@dataclass(frozen=True)
class Comparison:
    """One arm's throughput over another's."""

    ratio: float
    """The median over the rounds that both have; without such a round the ratio of the medians."""
    interval: Interval | None
    rounds: int
    """Rounds that both have."""
    verdict: Verdict


def exchange(strategy: str) -> Exchange:
    """Synchronous, asynchronous, or trainings side by side that exchange nothing."""
    return CATALOG[StrategyName(strategy)].exchange


def throughput(record: Record) -> float:
    """Images per second of the whole job: its examples over its wall time, all timed windows together.

    Never a mean of rates, which is always higher: step times 0.1, 0.1, 0.1 and 0.7 s at batch 10 are 40.0 images/s.

    Raises:
        ValueError: there is no timed window, or the ranks of a synchronous job do not have equally many.
    """
    examples, elapsed_s = _WORK[exchange(record.spec["strategy"])](record.ranks)
    if elapsed_s <= 0:
        raise ValueError("no timed window")
    return examples / elapsed_s


def window_step_ms(record: Record) -> tuple[float, ...]:
    """Milliseconds in which all devices take one step, one value a timed window, in the order of time.

    Synchronous: the slowest rank's. Asynchronous, where a step is one worker's: the time in which the chief saw as many
    applied as there are workers. Without exchange: each rank's own. A window in which nothing was applied has no value.
    """
    kind = exchange(record.spec["strategy"])
    steps_of_all = record.spec["workers"] if kind is Exchange.ASYNC else 1
    rows = [[window for window in row if window.steps] for row in _SERIES[kind](record.ranks)]
    return tuple(1000 * steps_of_all * max(window.elapsed_s / window.steps for window in row) for row in rows if row)


def _rows(ranks: Sequence[RankRecord]) -> list[tuple[Window, ...]]:
    """Window k of every rank, for each k."""
    return list(zip(*(rank.windows for rank in ranks), strict=True))


def _chiefs(ranks: Sequence[RankRecord]) -> list[tuple[Window, ...]]:
    """The windows of the one rank that sees all workers, as rows of one."""
    chief = [rank for rank in ranks if rank.task.startswith("chief")]
    return [(window,) for rank in chief[:1] for window in rank.windows]


def _abreast(ranks: Sequence[RankRecord]) -> list[tuple[Window, ...]]:
    """Window k of every rank, for each k that all ranks have.

    A rank that left its warm-up sooner has more: while it runs those, others are done and leave it the machine.
    """
    return list(zip(*(rank.windows for rank in ranks), strict=False))


def _single(ranks: Sequence[RankRecord]) -> list[tuple[Window, ...]]:
    """The same as rows of one: the first window of every rank, then the second of every rank, and so on."""
    return [(window,) for row in _abreast(ranks) for window in row]


_SERIES = {Exchange.SYNC: _rows, Exchange.ASYNC: _chiefs, Exchange.NONE: _single}


def _in_step(ranks: Sequence[RankRecord]) -> tuple[int, float]:
    """Synchronous: window k costs what its slowest rank took."""
    rows = _rows(ranks)
    examples = sum(window.examples for row in rows for window in row)
    return examples, math.fsum(max(window.elapsed_s for window in row) for row in rows)


def _as_the_chief_saw(ranks: Sequence[RankRecord]) -> tuple[int, float]:
    """Asynchronous: what was applied, over the chief's clock."""
    windows = [row[0] for row in _chiefs(ranks)]
    return sum(window.examples for window in windows), math.fsum(window.elapsed_s for window in windows)


def _side_by_side(ranks: Sequence[RankRecord]) -> tuple[int, float]:
    """No exchange: all began together at the barrier, the last one through the windows that all have ends the job."""
    rows = _abreast(ranks)
    examples = sum(window.examples for row in rows for window in row)
    took = [math.fsum(window.elapsed_s for window in windows) for windows in zip(*rows, strict=True)]
    return examples, max(took, default=0.0)


_WORK = {Exchange.SYNC: _in_step, Exchange.ASYNC: _as_the_chief_saw, Exchange.NONE: _side_by_side}


def interval_over_rounds(values: Sequence[float], seed: int = 0) -> Interval | None:
    """The spread of one figure a round; None for a single round.

    The percentile bootstrap of the median (Efron 1979). It does not depend on the order of `values`. Over three to five
    rounds it is no wider than their own range, so that it covers less than 95 %: `compare` asks for more than this.
    """
    if len(values) < 2:
        return None
    if len(values) < FEWEST_ROUNDS:
        return Interval(min(values), max(values), "min..max")
    draw = random.Random(seed)
    ordered = sorted(values)
    medians = sorted(median(draw.choices(ordered, k=len(ordered))) for _ in range(RESAMPLES))
    edge = int(RESAMPLES * 0.025)
    return Interval(medians[edge], medians[-1 - edge], "95 %")


def compare(rounds: Mapping[Hashable, float], baseline: Mapping[Hashable, float]) -> Comparison:
    """`rounds` over `baseline`, throughputs by round, paired by round. Neither may be empty."""
    ratios = [value / baseline[key] for key, value in rounds.items() if key in baseline]
    if not ratios:
        ratio = median(rounds.values()) / median(baseline.values())
        return Comparison(ratio, None, 0, Verdict.CANNOT_TELL)
    return Comparison(median(ratios), interval_over_rounds(ratios), len(ratios), verdict(ratios))


def verdict(ratios: Sequence[float]) -> Verdict:
    """What the ratios of paired rounds can say.

    The bootstrap interval alone would call two equal arms different in a quarter of all benches of three rounds (all
    three ratios on one side of 1). So Student's interval of the mean log ratio must leave 1 out as well: 5 % at most.
    """
    if len(ratios) < FEWEST_ROUNDS:
        return Verdict.CANNOT_TELL
    low, high = _student_95(ratios)
    if low <= 1 <= high:
        return Verdict.CANNOT_TELL
    interval = interval_over_rounds(ratios)
    if interval is not None and low > 1 and interval.low > 1:
        return Verdict.FASTER
    return Verdict.SLOWER if interval is not None and high < 1 and interval.high < 1 else Verdict.CANNOT_TELL


def _student_95(ratios: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the geometric mean."""
    from scipy.stats import t  # a heavy import, which a launch that shows one figure does not need

    logs = [math.log(ratio) for ratio in ratios]
    half = float(t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(fmean(logs) - half), math.exp(fmean(logs) + half)
