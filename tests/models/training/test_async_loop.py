"""The chief of a parameter-server job, with simulated workers and clock."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tfdist.models.training.schedule import Schedule
from tfdist.models.training.windows import WindowLog

BATCH = 8


@dataclass
class Workers:
    """Simulates the coordinator and the counter: workers apply the scheduled steps in order, one per second.

    A wait applies steps up to the awaited one, and `ahead(n)` more in the n-th wait.
    """

    ahead: Callable[[int], int]
    scheduled: int = 0
    done: int = 0
    waits: int = 0
    now: float = 0.0

    def schedule_one(self) -> "Step":
        self.scheduled += 1
        return Step(self, self.scheduled)

    def drain(self) -> None:
        self.apply(self.scheduled)

    def apply(self, until: int) -> None:
        until = min(until, self.scheduled)
        self.now += max(0, until - self.done)
        self.done = max(self.done, until)

    def read_value(self) -> int:
        return self.done * BATCH


@dataclass
class Step:
    workers: Workers
    number: int

    def fetch(self) -> float:
        self.workers.waits += 1
        self.workers.apply(self.number + self.workers.ahead(self.workers.waits))
        return float(self.number)


def train(windows: tuple[int, ...], ahead: Callable[[int], int], warmup_steps: int = 4) -> WindowLog:
    workers = Workers(ahead)
    from tfdist.models.training import async_loop

    log = WindowLog(Schedule(windows, warmup_steps), wait=lambda: None, clock=lambda: workers.now)
    async_loop._Chief(log, workers.schedule_one, workers.drain, workers, BATCH).train(windows)
    assert workers.done == sum(windows)
    return log


@pytest.mark.parametrize("warmup_steps", [0, 4])
@pytest.mark.parametrize(
    "ahead", [lambda wait: 0, lambda wait: 1, lambda wait: 99, lambda wait: 5 * (wait % 3), lambda wait: wait % 2]
)
def test_every_step_is_in_one_window_and_no_window_is_empty(ahead, warmup_steps):
    log = train((2, 2, 2, 2, 2, 2, 2, 1), ahead, warmup_steps)
    every = [*log.warmup, *log.timed]
    assert sum(window.steps for window in every) == 15
    assert sum(window.examples for window in every) == 15 * BATCH
    assert all(window.steps > 0 for window in every)
    assert [window.elapsed_s for window in log.timed] == [window.steps for window in log.timed]


def test_a_window_without_new_steps_is_merged_into_the_next():
    # the third timed window's wait (the sixth of all) finds all five that are scheduled applied
    log = train((2,) * 8, lambda wait: 99 if wait == 6 else 0)
    assert [window.steps for window in log.timed] == [2, 2, 6, 2]
    assert [window.loss for window in log.timed] == [6.0, 8.0, 10.0, 16.0]


def test_last_windows_without_new_steps_are_dropped():
    log = train((2,) * 6, lambda wait: 99)
    assert [window.steps for window in log.timed] == [6, 2]
