"""Rows and warnings of records, as a report computes them."""

from collections.abc import Sequence
from dataclasses import replace

from tests.bench.conftest import record
from tfdist.bench.folder import BenchFile
from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.build import summarize_report
from tfdist.bench.report.section import Warning
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.report.verdict import Verdict, verdict_of
from tfdist.bench.report.warnings import warnings_for
from tfdist.models.record import Record, Window


def folder(records: Sequence[Record], label: str = "here", bench: BenchFile | None = None) -> ResultFolder:
    return ResultFolder(label, bench, tuple(records), (), ())


def rows_of(records: Sequence[Record]) -> dict[str, ArmRow]:
    rows, _ = summarize_report([folder(records)])
    return {row.arm: row for row in rows}


def warnings_of(records: Sequence[Record]) -> list[Warning]:
    rows, _ = summarize_report([folder(records)])
    return list(warnings_for(rows))


def codes(records: Sequence[Record]) -> list[str]:
    return [warning.code for warning in warnings_of(records)]


def verdict(records: Sequence[Record], more: str = "") -> Verdict:
    rows, pairs = summarize_report([folder(records)])
    return verdict_of(rows, pairs, lambda: more)


def advice(records: Sequence[Record]) -> str:
    return verdict(records).advice


def four(arm: str, **spec: object) -> list[Record]:
    """As many rounds, each of a start, as a verdict needs."""
    return [record(arm, [[0.1]], round=number, **spec) for number in (1, 2, 3, 4)]


def timed(arm: str, *seconds: float, **spec: object) -> list[Record]:
    """A round for each time, of one window of one step."""
    return [record(arm, [[time]], round=number, **spec) for number, time in enumerate(seconds, start=1)]


def with_losses(records: Sequence[Record], first: float, later: float) -> list[Record]:
    """With the warm-up of a turn: a window of one step, then one of four."""
    warmup = (Window(1, 10, 1.0, first), Window(4, 40, 0.4, later))
    return [replace(one, ranks=tuple(replace(rank, warmup=warmup) for rank in one.ranks)) for one in records]
