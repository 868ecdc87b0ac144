"""Raw windows -> images per second of the whole job. Pure, no TensorFlow."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from tfdist.models.record import RankRecord, Record, Window
from tfdist.strategies.catalog import Exchange, exchange_of
from tfdist.strategies.options import StrategyName


def exchange(spec: Mapping[str, Any]) -> Exchange:
    """How the replicas of a job exchange gradients. `spec` is as in a record, or the choices of an arm."""
    return exchange_of(StrategyName(spec["strategy"]), bool(spec.get("sync")))


def _timing(record: Record) -> Exchange:
    """How the windows of a record add up: asynchronous workers without a chief time their own steps, independently."""
    kind = exchange(record.spec)
    ranks = record.ranks
    workers = kind is Exchange.ASYNC and len(ranks) > 1 and ranks[0].task.startswith("worker")
    return Exchange.NONE if workers else kind


def throughput(record: Record) -> float:
    """Images per second of the whole job: its examples over its wall time, all timed windows together.

    Never a mean of rates, which is always higher: step times 0.1, 0.1, 0.1 and 0.7 s at batch 10 are 40.0 images/s.

    Raises:
        ValueError: no timed window or example, or the ranks of a synchronous job differ in their number of windows.
    """
    total = _parallel_total if _timing(record) is Exchange.NONE else _lockstep_total
    examples, elapsed_s = total(measuring_ranks(record))
    if elapsed_s <= 0 or examples <= 0:
        raise ValueError("no timed window")
    return examples / elapsed_s


def measuring_ranks(record: Record) -> Sequence[RankRecord]:
    """Those whose windows count: the leader of an asynchronous job is its first rank, and measures for all."""
    return record.ranks[:1] if _timing(record) is Exchange.ASYNC else record.ranks


def examples_per_step(record: Record) -> float:
    """Examples in a step of all devices; of asynchronous workers, in as many steps as there are workers."""
    ranks = [rank for rank in measuring_ranks(record) if rank.windows]
    each = [sum(w.examples for w in rank.windows) / max(1, sum(w.steps for w in rank.windows)) for rank in ranks]
    # asynchronous: the leader counts the steps of all workers, each with the batch of one
    return sum(each) * (record.spec["workers"] if _timing(record) is Exchange.ASYNC else 1)


def window_step_ms(record: Record) -> tuple[float, ...]:
    """Milliseconds in which every device takes one step, for each timed window in order of time.

    Synchronous: the slowest rank's. Asynchronous, where a step is one worker's: the time in which the leader counts as
    many steps as there are workers. Without exchange: each rank's, while all ranks train. Windows without an applied
    step are skipped.
    """
    kind = _timing(record)
    steps_of_all = record.spec["workers"] if kind is Exchange.ASYNC else 1
    simultaneous = _single_windows if kind is Exchange.NONE else _same_windows
    rows = [[window for window in row if window.steps] for row in simultaneous(measuring_ranks(record))]
    return tuple(1000 * steps_of_all * _seconds(row) / row[0].steps for row in rows if row)


def _same_windows(ranks: Sequence[RankRecord]) -> list[tuple[Window, ...]]:
    """Window k of every rank, for each k."""
    return list(zip(*(rank.windows for rank in ranks), strict=True))


def _single_windows(ranks: Sequence[RankRecord]) -> list[tuple[Window, ...]]:
    """Each window that begins before the first rank is through, in the order of their ends."""
    end_s = _first_end_s(ranks)
    begun = [(end, window) for rank in ranks for begin, end, window in _timed(rank) if begin < end_s]
    return [(window,) for _, window in sorted(begun, key=lambda timed: timed[0])]


def _timed(rank: RankRecord) -> list[tuple[float, float, Window]]:
    """Beginning and end of each window, in seconds since the common start."""
    edges = pairwise(accumulate((window.elapsed_s for window in rank.windows), initial=0.0))
    return [(*edge, window) for edge, window in zip(edges, rank.windows, strict=True)]


def _first_end_s(ranks: Sequence[RankRecord]) -> float:
    """When the first rank is through."""
    return min((max((end for _, end, _ in _timed(rank)), default=0.0) for rank in ranks), default=0.0)


def _lockstep_total(ranks: Sequence[RankRecord]) -> tuple[float, float]:
    """Window k takes as long as its slowest rank."""
    rows = _same_windows(ranks)
    examples = sum(window.examples for row in rows for window in row)
    return examples, math.fsum(map(_seconds, rows))


def _seconds(row: Sequence[Window]) -> float:
    """Seconds of a window of all ranks, without those between epochs: meanwhile the others may wait in their steps."""
    whole = max(window.elapsed_s + window.between_s for window in row)
    return max(whole - max(window.between_s for window in row), min(window.elapsed_s for window in row))


def _parallel_total(ranks: Sequence[RankRecord]) -> tuple[float, float]:
    """All ranks start together and are counted until the first is through: then the others have the machine alone.

    Of a window that is open then, the examples count in proportion to its time.
    """
    end_s = _first_end_s(ranks)
    examples = []
    for rank in ranks:
        for begin, end, window in _timed(rank):
            share = 1.0 if end <= end_s else max(0.0, end_s - begin) / (end - begin)
            examples.append(window.examples * share)
    return math.fsum(examples), end_s
