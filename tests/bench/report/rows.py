"""Rows and warnings of records, as a report computes them."""

from collections.abc import Sequence
from dataclasses import replace

from tests.bench.conftest import record
from tfdist.bench.folder import BenchFile
from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.build import headline
from tfdist.bench.report.section import Warning
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.bench.report.warnings import same_pairs, trust_of, warnings_for
from tfdist.models.record import Record, Window


def folder(records: Sequence[Record], label: str = "here", bench: BenchFile | None = None) -> ResultFolder:
    return ResultFolder(label, bench, tuple(records), (), ())


def rows_of(records: Sequence[Record]) -> dict[str, ArmRow]:
    return {row.arm: row for row in summarize([folder(records)])}


def warnings_of(records: Sequence[Record]) -> list[Warning]:
    rows = summarize([folder(records)])
    return list(warnings_for(rows))


def codes(records: Sequence[Record]) -> list[str]:
    return [warning.code for warning in warnings_of(records)]


def text_of(records: Sequence[Record]) -> str:
    rows = summarize([folder(records)])
    (text,) = headline(rows, trust_of(rows, same_pairs(rows)))
    return text


def three(arm: str, **spec: object) -> list[Record]:
    return [record(arm, [[0.1]], round=number, **spec) for number in (1, 2, 3)]


def timed(arm: str, *seconds: float, **spec: object) -> list[Record]:
    """A round for each time, of one window of one step."""
    return [record(arm, [[time]], round=number, **spec) for number, time in enumerate(seconds, start=1)]


def with_losses(records: Sequence[Record], first: float, later: float) -> list[Record]:
    """With the warm-up of a turn: a window of one step, then one of four."""
    warmup = (Window(1, 10, 1.0, first), Window(4, 40, 0.4, later))
    return [replace(one, ranks=tuple(replace(rank, warmup=warmup) for rank in one.ranks)) for one in records]
