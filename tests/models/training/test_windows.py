"""The window log with a simulated clock."""

import json
import os

import pytest

from tfdist.models.training.schedule import Schedule
from tfdist.models.training.windows import WindowLog


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.read = 0

    def __call__(self) -> float:
        self.read += 1
        return self.now


def run(times, *, warmup_steps=2, agree=lambda elapsed: elapsed, barrier_s=50.0):
    """One window of two steps for each of `times`; the clock at each wait for the other ranks."""
    clock, waited = Clock(), []

    def wait():
        waited.append(clock.now)
        clock.now += barrier_s

    log = WindowLog(Schedule((2,) * len(times), warmup_steps), agree=agree, wait=wait, clock=clock)
    for seconds in times:
        log.open()
        clock.now += seconds / 2
        log.first_step()
        clock.now += seconds / 2
        log.close(2, 16, seconds * 10)
    return log, waited


def test_windows_are_contiguous_except_at_the_barrier():
    log, waited = run([5.0, 1.0, 1.0, 2.0, 3.0, 4.0])
    assert [window.elapsed_s for window in log.warmup] == [5.0, 1.0, 1.0]
    assert [window.elapsed_s for window in log.timed] == [2.0, 3.0, 4.0]
    assert waited == [107.0]
    assert [window.loss for window in log.timed] == [20.0, 30.0, 40.0]
    assert {(window.steps, window.examples) for window in log.timed} == {(2, 16)}
    assert (log.opened_at, log.first_step_at) == (100.0, 102.5)


def test_without_warm_up_the_barrier_comes_first():
    log, waited = run([5.0, 1.0], warmup_steps=0)
    assert log.warmup == []
    assert [window.elapsed_s for window in log.timed] == [5.0, 1.0]
    assert waited == [100.0]
    assert log.opened_at == 150.0


def test_the_agreed_times_end_the_warm_up():
    agreed = iter([9.0, 5.0, 2.0, 1.0])
    steady, _ = run([1.0] * 8, agree=lambda _: next(agreed))
    assert len(steady.warmup) == 4
    assert [window.elapsed_s for window in steady.warmup] == [1.0] * 4


def test_the_clock_is_read_between_windows_only():
    clock = Clock()
    log = WindowLog(Schedule((5, 5, 5), 0), wait=lambda: None, clock=clock)
    for _ in range(3):
        log.open()
        clock.now += 1
        log.close(5, 5, 0.0)
    assert clock.read == 4


def test_the_reported_throughput_is_that_of_the_whole_job(monkeypatch):
    read, write = os.pipe()
    monkeypatch.setenv("TFDIST_EVENTS_FD", str(write))
    clock = Clock()
    log = WindowLog(Schedule((5, 5), 0), share=0.25, wait=lambda: None, clock=clock)
    log.open()
    clock.now += 2
    log.close(5, 40, 1.5)
    os.close(write)
    with os.fdopen(read) as lines:
        assert [json.loads(line) for line in lines] == [
            {"event": "phase", "phase": "tracing"},
            {"event": "step", "step": 5, "steps": 10, "images_per_s": 80.0, "loss": 1.5},
        ]


def test_close_without_open_raises():
    with pytest.raises(RuntimeError, match="without open"):
        WindowLog(Schedule((1,), 0)).close(1, 1, 0.0)
