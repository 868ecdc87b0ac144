"""Kinds of arms side by side, of known times."""

from collections.abc import Sequence

import pytest

from tests.bench.conftest import record
from tests.bench.report.rows import folder, timed
from tfdist.bench.report.section import Section
from tfdist.bench.report.sections.kinds import kinds_section
from tfdist.bench.report.summary import ReportData, summarize
from tfdist.models.record import Record

ONE = timed("one", 0.1, 0.11, 0.1, 0.1)
BOTH = {"devices": 2, "examples": 20}


def servers(seconds: float) -> list[Record]:
    return [
        record("servers", [[seconds]], round=n, strategy="parameter-server", workers=2, ps=1, tasks=["chief-0"])
        for n in (1, 2, 3, 4)
    ]


def section(records: Sequence[Record]) -> Section | None:
    folders = (folder(records),)
    return kinds_section(ReportData(folders, summarize(folders)))


def test_the_fastest_arm_of_each_kind_is_shown() -> None:
    slow = timed("slow", 0.2, 0.21, 0.2, 0.2, strategy="mirrored", **BOTH)
    fast = timed("fast", 0.15, 0.16, 0.15, 0.15, strategy="mirrored", **BOTH)
    made = section([*ONE, *slow, *fast])
    assert made is not None
    shown = [(row["kind"], row["fastest"], row["arms"]) for row in made.tables[0].rows]
    assert shown == [("single-card, sync", "one", "1"), ("multi-card, sync", "fast", "2")]
    assert made.charts[0].data["arm"].to_list() == ["one", "slow", "fast"]
    assert "multi-card, sync: fast 131.2 (" in made.charts[0].alt


def test_sync_and_async_are_compared_with_how_certain_that_is() -> None:
    fast = timed("fast", 0.1, 0.11, 0.1, 0.1, strategy="mirrored", **BOTH)
    made = section([*ONE, *fast, *servers(0.1)])
    assert made is not None
    (text,) = made.answer
    assert text.startswith(
        "fast, the fastest synchronous arm on several devices, reaches 1.95 times the images/s of servers"
    )
    assert "measurably faster" in text


def test_arms_of_one_kind_have_no_section() -> None:
    assert section(ONE) is None


@pytest.mark.parametrize("times", [(0.1,), (0.1, 0.1)])
def test_too_few_rounds_are_not_compared(times: tuple[float, ...]) -> None:
    records = [*timed("one", *times), *timed("both", *times, strategy="mirrored", **BOTH), *servers(0.1)[: len(times)]]
    assert section(records) is None  # no arm may be called the fastest of its kind
