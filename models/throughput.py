"""From raw windows to images per second of the whole job. Pure, no TensorFlow."""

import math
from collections.abc import Sequence

from tfdist.models.record import RankRecord, Record, Window
from tfdist.strategies.catalog import CATALOG, Exchange, StrategyName


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
