"""The section on batch sizes."""

import re
from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tests.bench.report.rows import folder
from tfdist.bench.report.section import Section
from tfdist.bench.report.sections.batch import batch_section
from tfdist.bench.report.summary import WRONG, ReportData, summarize
from tfdist.models.record import Record

REASON = "worker-0 was killed by SIGKILL"


def size(batch: int, rate: float, **spec: object) -> list[Record]:
    """Four rounds at about `rate` images/s, each size with another order of noise."""
    noise = [0.98, 1.02, 1.0, 1.0]
    times = [batch / rate * noise[(number + batch // 4) % 4] for number in range(4)]
    return [
        record(f"batch-{batch}", [[time]], round=number, examples=batch, batch_size=batch, **spec)
        for number, time in enumerate(times, start=1)
    ]


def section_of(*sizes: list[Record]) -> Section | None:
    folders = (folder([record for size in sizes for record in size]),)
    return batch_section(ReportData(folders, summarize(folders)))


@pytest.fixture
def section() -> Section:
    out_of_memory = record("batch-16", batch_size=16, status="failed", reason=REASON)
    found = section_of(size(8, 101.0), size(1, 50.0), size(4, 100.0), [out_of_memory])
    assert found is not None
    return found


def test_few_sizes_or_other_differences_are_no_sweep():
    assert section_of(size(1, 50.0), size(2, 50.0), size(4, 50.0)) is None
    assert section_of(size(1, 50.0), size(2, 50.0), size(4, 50.0), size(8, 50.0, alpha=0.35)) is None


def test_the_smallest_batch_that_is_as_fast_and_the_limit_are_named(section):
    best, limit = section.answer
    assert best.startswith(
        "one-device: batch 8 has the most images/s, 101; batch 4 is the smallest that is not measurably "
    )
    assert re.search(r"not measurably slower: at most [1-9] %\.$", best)
    assert limit == f"one-device: batch 16 did not run: {REASON}."


def test_a_size_in_too_few_rounds_is_not_recommended():
    sizes = (size(1, 50.0), size(2, 100.0)[:2], size(4, 100.0), size(8, 101.0))
    found = section_of(*sizes)
    assert found is not None
    assert "; batch 4 is the smallest that is not measurably slower: at most " in found.answer[0]
    few = section_of(*(each[:2] for each in sizes))
    assert few is not None
    assert few.answer == ("one-device: batch 8 has the most images/s, 101.",)


def test_sizes_are_in_order_and_a_failed_one_keeps_its_row(section):
    (table,) = section.tables
    assert list(table.data["batch_per_device"]) == [1, 4, 8, 16]
    assert [row["memory (MB)"] for row in table.rows] == ["700", "700", "700", "-"]
    assert table.rows[-1]["status"] == f"failed: {REASON}"


def test_charts_leave_out_what_has_no_figure(section):
    from matplotlib.figure import Figure

    for chart in section.charts:
        axes = Figure().subplots()
        chart.paint(axes)
        (line,) = axes.lines
        assert list(line.get_xdata()) == [1, 4, 8]
        assert len(chart.data) == 3


def test_each_series_is_named_by_what_distinguishes_it():
    mirrored = {"strategy": "mirrored", "devices": 2, "cross_device": "hierarchical-copy"}
    sizes = [size(batch, 50.0, **mirrored, packs=packs) for packs in (1, 4) for batch in (1, 2, 4, 8)]
    renamed = [[replace(one, arm=f"{one.arm}-{number}") for one in each] for number, each in enumerate(sizes)]
    found = section_of(*renamed)
    assert found is not None
    assert [text.partition(":")[0] for text in found.answer] == ["mirrored, packs 1", "mirrored, packs 4"]
    assert len(found.tables[0].data) == 8

    from matplotlib.figure import Figure

    axes = Figure().subplots()
    found.charts[0].paint(axes)
    assert axes.get_legend_handles_labels()[1] == ["mirrored, packs 1", "mirrored, packs 4"]


def test_wrong_losses_are_not_ranked():
    folders = (folder([one for batch in (1, 2, 4, 8) for one in size(batch, 50.0 * batch)]),)
    rows = [replace(row, status=WRONG) if row.batch_per_replica == 8 else row for row in summarize(folders)]
    found = batch_section(ReportData(folders, tuple(rows)))
    assert found is not None
    assert found.answer == ("one-device: batch 4 has the most images/s, 200.",)
