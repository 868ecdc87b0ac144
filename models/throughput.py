"""Raw windows -> images per second of the whole job. Pure, no TensorFlow."""

import math
from collections.abc import Callable, Mapping, Sequence

from tfdist.models.record import RankRecord, Record, Window
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import StrategyName


def exchange(strategy: str) -> Exchange:
    """How the replicas of a strategy exchange gradients."""
    return CATALOG[StrategyName(strategy)].exchange


def throughput(record: Record) -> float:
    """Images per second of the whole job: its examples over its wall time, all timed windows together.

    Never a mean of rates, which is always higher: step times 0.1, 0.1, 0.1 and 0.7 s at batch 10 are 40.0 images/s.

    Raises:
        ValueError: no timed window, or the ranks of a synchronous job differ in their number of windows.
    """
    examples, elapsed_s = _TOTALS[exchange(record.spec["strategy"])](record.ranks)
    if elapsed_s <= 0:
        raise ValueError("no timed window")
    return examples / elapsed_s


def window_step_ms(record: Record) -> tuple[float, ...]:
    """Milliseconds in which every device takes one step, for each timed window in order of time.

    Synchronous: the slowest rank's. Asynchronous, where a step is one worker's: the time in which the leader counts as
    many steps as there are workers. Without exchange: each rank's. Windows without an applied step are skipped.
    """
    kind = exchange(record.spec["strategy"])
    steps_of_all = record.spec["workers"] if kind is Exchange.ASYNC else 1
    rows = [[window for window in row if window.steps] for row in _SERIES[kind](record.ranks)]
    return tuple(1000 * steps_of_all * max(window.elapsed_s / window.steps for window in row) for row in rows if row)


_Rows = list[tuple[Window, ...]]


def _same_windows(ranks: Sequence[RankRecord]) -> _Rows:
    """Window k of every rank, for each k."""
    return list(zip(*(rank.windows for rank in ranks), strict=True))


def _common_windows(ranks: Sequence[RankRecord]) -> _Rows:
    """Window k of every rank, for each k that all ranks have.

    A rank with a shorter warm-up has more timed windows. During those, other ranks are done and it runs faster.
    """
    return list(zip(*(rank.windows for rank in ranks), strict=False))


def _single_windows(ranks: Sequence[RankRecord]) -> _Rows:
    return [(window,) for row in _common_windows(ranks) for window in row]


def _examples(rows: _Rows) -> int:
    return sum(window.examples for row in rows for window in row)


def _lockstep_total(ranks: Sequence[RankRecord]) -> tuple[int, float]:
    """Window k takes as long as its slowest rank."""
    rows = _same_windows(ranks)
    return _examples(rows), math.fsum(max(window.elapsed_s for window in row) for row in rows)


def _parallel_total(ranks: Sequence[RankRecord]) -> tuple[int, float]:
    """All ranks start together at the barrier; the slowest one ends the job."""
    rows = _common_windows(ranks)
    times = [math.fsum(window.elapsed_s for window in windows) for windows in zip(*rows, strict=True)]
    return _examples(rows), max(times, default=0.0)


# The leader of an asynchronous job is its first rank, and measures for all.
_SERIES: Mapping[Exchange, Callable[[Sequence[RankRecord]], _Rows]] = {
    Exchange.SYNC: _same_windows,
    Exchange.ASYNC: lambda ranks: _same_windows(ranks[:1]),
    Exchange.NONE: _single_windows,
}
_TOTALS: Mapping[Exchange, Callable[[Sequence[RankRecord]], tuple[int, float]]] = {
    Exchange.SYNC: _lockstep_total,
    Exchange.ASYNC: lambda ranks: _lockstep_total(ranks[:1]),
    Exchange.NONE: _parallel_total,
}
