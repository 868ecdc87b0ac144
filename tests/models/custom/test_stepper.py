"""Windows of a program whose steps take a simulated second each."""

from dataclasses import dataclass, field
from itertools import repeat

import pytest

from tfdist.models.custom.stepper import AsyncWindows, SyncWindows
from tfdist.models.training.windows import Reading, WindowLog


@dataclass
class Program:
    """Trains a step when the windows let it, with the number of the step as result."""

    now: float = 0.0
    trained: int = 0
    log: WindowLog = field(init=False)

    def __post_init__(self):
        self.log = WindowLog(clock=lambda: self.now, read=lambda: Reading(0, 0, 0, 0))

    def step(self):
        self.trained += 1
        self.now += 1.0
        return self.trained

    def run(self, stepping, most=1000):
        next(stepping)
        while self.trained < most:
            try:
                stepping.send(self.step())
            except StopIteration:
                return


def test_windows_wait_for_the_device_at_each_edge():
    program, waits = Program(), []
    loop = SyncWindows(8, lambda: waits.append(program.trained), float)
    program.run(loop.windows((2, 3), program.log, before=1, after=2))
    assert [(w.steps, w.examples, w.elapsed_s, w.loss) for w in program.log.windows] == [
        (2, 16, 2.0, 3),
        (3, 24, 3.0, 6),
    ]
    assert waits == [1, 3, 6, 8]
    assert program.log.first_step_at == 3.0


@dataclass
class Workers(Program):
    """Schedules steps at once; waiting for one lets the workers train up to it. One second per step."""

    done: int = 0
    backlog: list[int] = field(default_factory=list)
    """Steps that were scheduled and not done after each wait."""

    def step(self):
        self.trained += 1
        return Remote(self, self.trained)

    def wait_for(self, number):
        self.now += max(0, number - self.done)
        self.done = max(number, self.done)
        self.backlog.append(self.trained - self.done)


@dataclass
class Remote:
    workers: Workers
    number: int

    def fetch(self):
        self.workers.wait_for(self.number)
        return self.number


@pytest.mark.parametrize("before", [0, 4])
def test_scheduled_windows_end_when_their_last_step_is_done(before):
    workers = Workers()
    loop = AsyncWindows(8, 4, lambda: workers.wait_for(workers.trained), float)
    workers.run(loop.windows((3, 2), workers.log, before, after=4))
    assert [(w.steps, w.examples, w.elapsed_s) for w in workers.log.windows] == [(3, 24, 3.0), (2, 16, 2.0)]
    assert [window.loss for window in workers.log.windows] == [before + 3, before + 5]
    assert workers.trained == workers.done == before + 5 + 4


def test_workers_have_work_at_every_edge_and_the_program_is_not_far_ahead():
    workers = Workers()
    loop = AsyncWindows(8, 4, lambda: workers.wait_for(workers.trained))
    workers.run(loop.windows((3,) * 5, workers.log, 4, 4))
    *edges, drained = workers.backlog
    assert edges == [4] * 6
    assert drained == 0


def test_windows_without_end():
    workers = Workers()
    loop = AsyncWindows(8, 4, lambda: None)
    workers.run(loop.windows(repeat(10), workers.log), most=100)
    assert [window.elapsed_s for window in workers.log.windows] == [10.0] * 9
