"""The model on published tables: later columns from earlier ones."""

import pytest

from lab.predict_published import (
    ASYNC,
    PUBLISHED,
    RING,
    RING_BYTES,
    RING_LINK,
    HeldOut,
    Series,
    hold_out,
    own_exchange_s,
    page,
    read_published,
)
from tfdist.bench.predict.ring import Ring
from tfdist.bench.report.markdown import markdown

FOUND = [point for series in read_published() for point in hold_out(series)]
LAST = [point for point in FOUND if point.last and not point.refused]


def last(family: str, name: str) -> HeldOut:
    return next(p for p in FOUND if p.last and p.series.family == family and p.series.name.startswith(name))


def test_four_of_five_published_points_are_inside_the_interval() -> None:
    for points in (LAST, [p for p in LAST if p.series.family != ASYNC], [p for p in FOUND if not p.refused]):
        assert sum(point.inside for point in points) >= 0.8 * len(points)
    assert len(LAST) == 16


def test_the_exchange_of_one_table_is_that_of_its_first_number_over_several_hosts() -> None:
    """Steps of 128: T1 = 397.8 ms, E = 13.05 ms from 16 devices; 32 devices 423.1 ms, 5 % longer for the doubling."""
    found = last("MultiWorkerMirrored NCCL", "ResNet-50 float32")
    assert found.constant == pytest.approx(9680, rel=1e-3)
    assert found.predicted == pytest.approx(9680 / 1.05, rel=1e-3)
    assert found.error == pytest.approx(-0.021, abs=1e-3)
    assert found.interval.high / found.interval.low == pytest.approx(1.37, rel=0.03)


def test_two_numbers_over_several_hosts_give_the_growth() -> None:
    """Hosts of 2 devices, no exchange; steps of 4 devices take 1.0 s, of 8 1.1 s: those of 16 take 1.2 s."""
    made = Series("x", "grows", "", 2, {1: 1.0, 2: 2.0, 4: 4 / 1.0, 8: 8 / 1.1, 16: 16 / 1.2})
    points = [point for point in hold_out(made) if point.last]
    assert [point.predicted for point in points] == [pytest.approx(16 / 1.2)]


def test_a_host_boundary_that_no_earlier_column_crosses_is_refused() -> None:
    assert {p.series.name for p in FOUND if p.last and p.refused} == {"B0 A100 TF32"}
    crossing = [
        p for p in FOUND if p.devices > p.series.per_host >= p.known[-1] and p.series.family not in (RING, ASYNC)
    ]
    assert crossing
    assert all(point.refused for point in crossing)


def test_a_ring_at_the_bandwidth_of_the_link_is_faster_than_the_published_exchange() -> None:
    wire_s = float(Ring(0.0, 0.0, 1 / (RING_LINK.bytes_per_s or 1)).seconds(2, RING_BYTES))
    assert RING_BYTES == 4 * 3_504_872
    assert wire_s == pytest.approx(0.11931, abs=1e-5)
    exchange_s = 64 / last(RING, "MobileNetV2").published - 32 / 236
    assert exchange_s == pytest.approx(0.214, abs=1e-3)
    assert wire_s < 0.6 * exchange_s
    assert wire_s < own_exchange_s() < 1.1 * exchange_s


def test_a_null_step_is_at_most_the_queue_for_all_servers() -> None:
    """Of equal servers and no computing, a step of n workers takes (n + servers - 1) / servers times as long."""
    for size, one_s in (("scalar", 0.0018), ("100 MB", 0.147), ("1 GB", 1.01)):
        found = last(ASYNC, f"null step, {size}")
        assert 100 / found.predicted == pytest.approx(one_s * 115 / 16)
        assert found.error < 0


def test_the_committed_page_has_the_same_errors() -> None:
    shown = PUBLISHED.with_suffix(".md").read_text()
    made = markdown(page(FOUND))
    table = [
        line for line in made.splitlines() if line.startswith("| K80") or line.startswith("| MultiWorkerMirrored NCCL")
    ]
    assert len(table) == 8
    assert all(line in shown for line in table)
