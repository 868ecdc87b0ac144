"""The chief of a parameter-server job, with simulated workers and clock."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tfdist.models.record import Window
from tfdist.models.training.windows import Reading, WindowLog

BATCH = 8


@dataclass
class Workers:
    """Simulates the coordinator and the counter: workers apply the scheduled steps in order, one per second.

    A wait applies steps up to the awaited one, and `ahead(n)` more in the n-th wait.
    """

    ahead: Callable[[int], int]
    scheduled: int = 0
    closures: list[int] = field(default_factory=list)
    """The steps of each."""
    done: int = 0
    waits: int = 0
    now: float = 0.0

    def schedule(self, steps: int) -> "Step":
        self.scheduled += steps
        self.closures.append(steps)
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


def train(windows: tuple[int, ...], ahead: Callable[[int], int], before: int = 0, after: int = 0) -> list[Window]:
    workers = Workers(ahead)
    from tfdist.models.training.async_loop import AsyncLoop

    log = WindowLog(clock=lambda: workers.now, read=lambda: Reading(0, 0, 0, 0))
    loop = AsyncLoop(workers.schedule, workers.drain, workers, BATCH, 2)
    loop.windows(windows, log, before, after)
    assert workers.done == before + sum(windows) + after
    return list(log.take())


@pytest.mark.parametrize(
    "ahead", [lambda wait: 0, lambda wait: 1, lambda wait: 99, lambda wait: 5 * (wait % 3), lambda wait: wait % 2]
)
def test_every_step_is_in_one_window_and_no_window_is_empty(ahead):
    windows = train((2, 2, 2, 2, 2, 2, 2, 1), ahead)
    assert sum(window.steps for window in windows) == 15
    assert sum(window.examples for window in windows) == 15 * BATCH
    assert all(window.steps > 0 for window in windows)
    assert [window.elapsed_s for window in windows] == [window.steps for window in windows]


def test_steps_before_and_after_are_trained_but_not_counted():
    windows = train((4, 4), lambda wait: 0, before=3, after=4)
    assert [window.steps for window in windows] == [4, 4]
    assert [window.elapsed_s for window in windows] == [4.0, 4.0]


def test_work_is_queued_behind_the_last_edge():
    # the last wait finds two steps applied that were scheduled behind the last window
    windows = train((4, 4), lambda wait: 2 if wait == 3 else 0, before=1, after=4)
    assert [window.steps for window in windows] == [4, 6]


def test_a_window_without_new_steps_is_merged_into_the_next():
    # the wait for the third window finds all five that are scheduled applied
    windows = train((2,) * 8, lambda wait: 99 if wait == 3 else 0)
    assert [window.steps for window in windows] == [2, 2, 6, 2, 2, 2]
    assert [window.loss for window in windows] == [2.0, 4.0, 6.0, 12.0, 14.0, 16.0]


def test_last_windows_without_new_steps_are_dropped():
    assert [window.steps for window in train((2,) * 4, lambda wait: 99)] == [6, 2]


def test_a_closure_has_several_steps():
    from tfdist.models.training.async_loop import AsyncLoop

    workers = Workers(lambda wait: 0)
    log = WindowLog(clock=lambda: workers.now, read=lambda: Reading(0, 0, 0, 0))
    AsyncLoop(workers.schedule, workers.drain, workers, BATCH, 2, steps_per_call=4).windows((8, 8, 3), log)
    assert workers.closures == [4, 4, 4, 4, 3]
    assert [window.steps for window in log.take()] == [8, 8, 3]
