"""The window log with a simulated clock and simulated counters."""

import json
import os
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfdist.models.record import GpuReading
from tfdist.models.training.windows import MOST_WINDOWS, Reading, WindowLog, joined, read_usage, step_s, usage_between

GPU = GpuReading(0, 1 << 30, 0.9, 250.0, 1000.0, 1410, "")


def test_a_window_has_the_energy_that_its_gpus_used_in_it():
    start = Reading(1.0, 2.0, 0.0, 5, (GPU, replace(GPU, index=1, energy_j=None)))
    later = (replace(GPU, energy_j=1125.5, power_w=300.0), replace(GPU, index=1, energy_j=None), replace(GPU, index=2))
    found = usage_between(start, Reading(1.5, 4.0, 0.1, 7, later))
    assert (found.cpu_s, found.busy_s, found.steal_s, found.resident_bytes) == (0.5, 2.0, 0.1, 7)
    assert [(gpu.index, gpu.energy_j, gpu.power_w) for gpu in found.gpus] == [
        (0, 125.5, 300.0), (1, None, 250.0), (2, None, 250.0),
    ]  # fmt: skip


def test_a_reading_without_gpus_has_none():
    assert read_usage().gpus == ()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.read = 0

    def __call__(self) -> float:
        self.read += 1
        return self.now

    def counters(self) -> Reading:
        return Reading(self.now / 2, self.now, self.now / 10, int(self.now))


def run(times: list[float]) -> tuple[WindowLog, Clock]:
    """One window of two steps for each of `times`."""
    clock = Clock()
    log = WindowLog(clock=clock, read=clock.counters)
    log.open()
    for seconds in times:
        clock.now += seconds / 2
        log.first_step()
        clock.now += seconds / 2
        log.close(2, 16, seconds * 10)
    return log, clock


def test_windows_are_contiguous_and_taken_once():
    log, _ = run([5.0, 1.0, 2.0])
    assert (log.opened_at, log.first_step_at, log.steps) == (100.0, 102.5, 6)
    windows = log.take()
    assert [window.elapsed_s for window in windows] == [5.0, 1.0, 2.0]
    assert [window.loss for window in windows] == [50.0, 10.0, 20.0]
    assert {(window.steps, window.examples) for window in windows} == {(2, 16)}
    assert log.take() == ()


@given(st.integers(0, 9 * MOST_WINDOWS))
@example(2 * MOST_WINDOWS - 1)
@example(2 * MOST_WINDOWS)
def test_neighbours_of_many_windows_are_joined_and_nothing_is_lost(count):
    log, clock = run([1.0] * count)
    windows = log.take()
    assert len(windows) == count if count < MOST_WINDOWS else MOST_WINDOWS // 2 <= len(windows) <= MOST_WINDOWS
    assert len({window.steps for window in windows[:-1]}) <= 1, "all but the last one have the same size"
    assert (sum(each.steps for each in windows), sum(each.examples for each in windows)) == (2 * count, 16 * count)
    assert sum(each.elapsed_s for each in windows) == pytest.approx(clock.now - 100.0)
    assert sum(each.usage.cpu_s for each in windows if each.usage) == pytest.approx((clock.now - 100.0) / 2)
    clock.now += 1.0
    log.close(2, 16, None)
    assert [each.steps for each in log.take()] == [2], "taken windows are not joined with later ones"


def test_a_joined_window_has_all_energy_and_the_last_readings():
    log, _ = run([4.0, 2.0])
    one, other = (
        replace(each, epochs=1, between_s=2.0, usage=replace(each.usage, gpus=(gpu, replace(gpu, energy_j=None))))
        for each, gpu in zip(log.take(), (GPU, replace(GPU, energy_j=500.0, power_w=300.0)), strict=True)
    )
    both = joined(one, other)
    assert (both.epochs, both.between_s, both.loss) == (2, 4.0, 20.0)
    assert both.usage is not None
    assert (both.usage.busy_s, both.usage.resident_bytes) == (6.0, 106)
    assert [(gpu.energy_j, gpu.power_w) for gpu in both.usage.gpus] == [(1500.0, 300.0), (None, 300.0)]
    assert joined(one, replace(other, usage=None)).usage is None


def test_the_time_before_open_belongs_to_no_window():
    log, clock = run([5.0])
    clock.now += 50.0
    log.open()
    clock.now += 1.0
    log.close(1, 8, None)
    assert [window.elapsed_s for window in log.take()] == [5.0, 1.0]
    assert log.opened_at == 100.0


def test_the_time_between_epochs_is_apart_and_the_window_continues():
    log, clock = run([])
    for seconds in (2.0, 50.0):
        clock.now += 1.0
        log.pause()
        log.pause()
        clock.now += seconds
        log.resume()
        log.resume()
    clock.now += 3.0
    log.close(4, 32, None)
    clock.now += 1.0
    log.close(1, 8, None)
    (window, after) = log.take()
    assert (window.elapsed_s, window.epochs, window.between_s, window.between_cpu_s) == (5.0, 2, 52.0, 26.0)
    assert window.usage is not None
    assert (window.usage.cpu_s, window.usage.busy_s, window.usage.steal_s) == (2.5, 5.0, pytest.approx(0.5))
    assert (after.epochs, after.between_s) == (0, 0.0)


def test_an_epoch_that_ends_before_the_windows_is_in_none():
    log, clock = run([])
    log.pause()
    clock.now += 9.0
    log.resume()
    log.open()
    clock.now += 1.0
    log.close(1, 8, None)
    (window,) = log.take()
    assert (window.elapsed_s, window.epochs) == (1.0, 0)


def test_energy_between_epochs_is_not_the_windows():
    readings = iter([1000.0, 1010.0, 1500.0, 1530.0])
    log = WindowLog(read=lambda: Reading(0, 0, 0, 0, (replace(GPU, energy_j=next(readings)),)))
    log.open()
    log.pause()
    log.resume()
    log.close(1, 8, None)
    (window,) = log.take()
    assert window.usage is not None
    assert window.usage.gpus[0].energy_j == 40.0


def test_usage_is_the_difference_of_the_counters_at_the_edges():
    first, second = run([4.0, 2.0])[0].take()
    assert first.usage is not None
    assert second.usage is not None
    assert (first.usage.cpu_s, first.usage.busy_s, first.usage.resident_bytes) == (2.0, 4.0, 104)
    assert (second.usage.cpu_s, second.usage.busy_s) == (1.0, 2.0)
    assert second.usage.steal_s == pytest.approx(0.2)


def test_the_clock_is_read_at_edges_only():
    log, clock = run([])
    for _ in range(3):
        clock.now += 1
        log.close(5, 5, 0.0)
    assert clock.read == 4


def events_of(monkeypatch, quiet: bool) -> list[dict]:
    read, write = os.pipe()
    monkeypatch.setenv("TFDIST_EVENTS_FD", str(write))
    clock = Clock()
    log = WindowLog(share=0.25, total=10, clock=clock, read=clock.counters, quiet=quiet)
    log.open()
    clock.now += 2
    log.close(5, 40, 1.5)
    os.close(write)
    with os.fdopen(read) as lines:
        return [json.loads(line) for line in lines]


def test_the_reported_throughput_is_that_of_the_whole_job(monkeypatch):
    assert events_of(monkeypatch, quiet=False) == [
        {"event": "phase", "phase": "tracing"},
        {"event": "step", "step": 5, "steps": 10, "images_per_s": 80.0, "loss": 1.5},
    ]


def test_nothing_is_reported_beside_a_turn(monkeypatch):
    assert events_of(monkeypatch, quiet=True) == [{"event": "phase", "phase": "tracing"}]


def test_the_time_of_a_step_is_over_all_windows():
    assert step_s(run([1.0, 3.0])[0].take()) == 1.0


def test_close_without_open_raises():
    with pytest.raises(RuntimeError, match="without open"):
        WindowLog().close(1, 1, 0.0)
