"""The section on batch sizes."""

import pytest

from tests.bench.conftest import record
from tests.bench.report.rows import folder
from tfdist.bench.report.batch_section import batch_section
from tfdist.bench.report.measured import Measured
from tfdist.bench.report.section import Section
from tfdist.bench.report.summary import summarize
from tfdist.models.record import Record

REASON = "worker-0 was killed by SIGKILL"


def size(batch: int, rate: float, **spec: object) -> list[Record]:
    """Three rounds at about `rate` images/s, each size with another order of noise."""
    noise = [0.98, 1.02, 1.0]
    times = [batch / rate * noise[(number + batch // 4) % 3] for number in range(3)]
    return [
        record(f"batch-{batch}", [[time]], round=number, examples=batch, batch_size=batch, **spec)
        for number, time in enumerate(times, start=1)
    ]


def section_of(*sizes: list[Record]) -> Section | None:
    folders = (folder([record for size in sizes for record in size]),)
    return batch_section(Measured(folders, summarize(folders)))


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
    assert best.startswith("one-device: batch 8 has the most images/s, 101.0; batch 4 is the smallest")
    assert limit == f"Batch 16 did not run: {REASON}."


def test_sizes_are_in_order_and_a_failed_one_keeps_its_row(section):
    (table,) = section.tables
    assert list(table.data["batch_per_device"]) == [1, 4, 8, 16]
    assert list(table.shown["memory (MB)"]) == ["700", "700", "700", "-"]
    assert table.shown["status"].iloc[-1] == f"failed: {REASON}"


def test_charts_leave_out_what_has_no_figure(section):
    from matplotlib.figure import Figure

    for chart in section.charts:
        axes = Figure().subplots()
        chart.paint(axes)
        (line,) = axes.lines
        assert list(line.get_xdata()) == [1, 4, 8]
        assert len(chart.data) == 3
