"""Connects the steps of a program with its launcher: windows for the display, or turns, and a record.

The windows of a loop that is not ours are generators: each `yield` lets the program train a step, and the program sends
back its result. Imports no TensorFlow by itself.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from tfdist.launch import events
from tfdist.models.custom import devices
from tfdist.models.custom.part import JobPart
from tfdist.models.record import RankRecord, Window
from tfdist.models.training import observation, pace
from tfdist.models.training.windows import WindowLog, sampled, step_s
from tfdist.strategies.options import LEGACY_KERAS, Keras

Stepping = Generator[None, Any, None]
LossOf = Callable[[Any], float | None]
"""The loss in the result of a window's last step; a RemoteValue has been fetched."""


@dataclass
class SyncWindows:
    """Each step follows the last one. At a window's end the task waits for its devices.

    The loop is `pace.Loop` turned inside out.
    """

    examples_per_step: int
    """Number that this task counts."""
    wait: Callable[[], None]
    loss: LossOf = lambda result: None

    def windows(self, sizes: Iterable[int], log: WindowLog, before: int = 0, after: int = 0) -> Stepping:
        """Let the program train `before` steps, windows of these sizes in steps, each logged, and `after` steps."""
        yield from _run(before)
        self.wait()
        log.open()
        for size in sizes:
            result = yield from _run(size)
            loss = self.loss(result)
            self.wait()
            log.first_step()
            log.close(size, size * self.examples_per_step, loss)
        yield from _run(after)
        self.wait()

    def settle(self, log: WindowLog) -> None:
        """Wait for all steps so far, and log the windows that they end."""
        self.wait()


def _run(steps: int) -> Generator[None, Any, Any]:
    """Let the program train steps; returns the result of the last one."""
    result = None
    for _ in range(steps):
        result = yield
    return result


@dataclass
class AsyncWindows:
    """Steps are scheduled on workers, and a step's result is a RemoteValue.

    A window's edge is the moment at which a step is done. It is waited for only when `ahead` more steps have been
    scheduled, so that workers have work at the edge. Steps are done in their order, except for those that other workers
    are at; their number is about the same at every edge.
    """

    examples_per_step: int
    ahead: int
    drain: Callable[[], None]
    loss: LossOf = lambda result: None
    edges: "deque[_Edge]" = field(default_factory=deque)
    """Those that were not waited for yet."""

    def windows(self, sizes: Iterable[int], log: WindowLog, before: int = 0, after: int = 0) -> Stepping:
        """`SyncWindows.windows`."""
        scheduled = 0
        if not before:
            log.open()
        for steps, counted in chain([(before, 0)], ((size, size) for size in sizes), [(after, None)]):
            result = None
            for _ in range(steps):
                result = yield
                scheduled += 1
                while self.edges and scheduled - self.edges[0].scheduled >= self.ahead:
                    self._pass(log)
            if steps and counted is not None:
                self.edges.append(_Edge(scheduled, counted, result))
        self.settle(log)

    def settle(self, log: WindowLog) -> None:
        """`SyncWindows.settle`."""
        while self.edges:
            self._pass(log)
        self.drain()

    def _pass(self, log: WindowLog) -> None:
        """Wait for an edge; it ends a window, or starts the first one."""
        edge = self.edges.popleft()
        result = edge.result.fetch()
        if not edge.steps:
            log.open()
            return
        log.first_step()
        log.close(edge.steps, edge.steps * self.examples_per_step, self.loss(result))


@dataclass(frozen=True)
class _Edge:
    scheduled: int
    """Steps so far."""
    steps: int
    """Steps of the window that ends here; 0: the first window starts here."""
    result: Any
    """The RemoteValue of the last step."""


REPORT_S = 2.0
"""Seconds of a window that is only displayed."""


MOST_INPUTS = 1000
"""Number of steps, the last ones of a window, for which the wait for input is kept."""


class Stepper:
    """Call `start` before the first step of a loop and `done` after each step; both say whether to train another one.

    The second of two loops continues where the first one was, in its window too.
    """

    def __init__(self, part: JobPart, loop: SyncWindows | AsyncWindows, log: WindowLog) -> None:
        """Connect the loop of a program, with a fresh log."""
        self.part, self.loop, self.log = part, loop, log
        self.trained = 0
        """Number of steps."""
        self._stepping: Stepping | None = None
        self._input_s: deque[float] = deque(maxlen=MOST_INPUTS)
        """Seconds that the program waited for each batch."""
        self._more = True

    @property
    def unfinished(self) -> bool:
        """The launcher has turns to release, or may have."""
        return events.in_turns() and self._more

    def note_input(self, seconds: float) -> None:
        """Take note of how long the program waited for the batch of its next step."""
        if self.part.ranks > 1:
            self._input_s.append(seconds)
            self.log.more = self._inputs

    def _inputs(self, step: int, count: int) -> dict[str, Any]:
        """Milliseconds that some of the last steps waited for their batch, in the form of `StepTimes.since`."""
        waited = list(self._input_s)[-count:]
        every, numbers = sampled(step, len(waited))
        return {"every": every, "input_ms": [round(1000 * waited[number - step - 1], 2) for number in numbers]}

    def continue_from(self, step: int) -> None:
        """Count the steps that are reported from this one on, unless a loop has been started before."""
        if self._stepping is None:
            self.log.steps = step

    def start(self) -> bool:
        """Start a loop."""
        if self._stepping is None:
            self._stepping = self._turns() if events.in_turns() else self.loop.windows(self._displayed(), self.log)
            next(self._stepping)
        return self._more

    def done(self, result: Any = None) -> bool:
        """End a step.

        Args:
            result: of the step, for the loop: a RemoteValue of an asynchronous step.
        """
        if self._stepping is None:
            raise RuntimeError("done() without start()")
        self.log.resume()  # a loop inside of this one was left
        self.trained += 1
        try:
            self._stepping.send(result)
        except StopIteration:
            self._more = False
        return self._more

    def end_epoch(self) -> None:
        """What follows is not training until `log.resume` is called. Later calls do nothing."""
        if self._stepping is not None and self._more:
            self.loop.settle(self.log)
            self.log.pause()

    def _turns(self) -> Stepping:
        self.log.quiet = True
        concurrent = self.part.concurrent
        yield from self.loop.windows((1, pace.OPENING_STEPS * concurrent), self.log)
        opening = self.log.take()
        self._report(opening)
        for turn in pace.turns(self.log, concurrent, step_s(opening[1:]) * concurrent):
            yield from self.loop.windows(turn.sizes, self.log, turn.before, turn.after)
        self._report(opening)
        devices.keep_iterators()

    def _report(self, warmup: tuple[Window, ...]) -> None:
        """Send the record of the steps trained so far."""
        strategy = devices.program_strategy()
        record = RankRecord(
            task=self.part.task,
            replicas=1 if strategy is None else max(1, strategy.num_replicas_in_sync // self.part.ranks),
            warmup=warmup,
            windows=(),
            phases_s=observation.first_step_phases(self.log),
            examples_applied=self.loop.examples_per_step * self.trained,
            updates_applied=self.trained,
            **observation.process(Keras.TWO if os.environ.get(LEGACY_KERAS) == "1" else Keras.THREE),
        )
        events.emit("record", record=asdict(record))

    def _displayed(self) -> Iterator[int]:
        """Sizes of windows that take about `REPORT_S`."""
        size = 1
        while True:
            yield size
            windows = self.log.take()
            size = max(1, round(REPORT_S / step_s(windows))) if windows else size


def make_stepper(part: JobPart, coordinator: Any = None, loss: LossOf = lambda result: None) -> Stepper:
    """A stepper whose `loop.examples_per_step` is still 0: set it before the first step ends.

    Args:
        part: of this task in its job.
        coordinator: the ClusterCoordinator of a task that schedules the steps of workers.
        loss: of the result of a step.
    """
    events.dump_on_request()
    loop: SyncWindows | AsyncWindows
    if part.workers:
        loop = AsyncWindows(0, 2 * part.workers, coordinator.join, loss)
    else:
        loop = SyncWindows(0, lambda: devices.wait_for(devices.program_strategy()), loss)
    return Stepper(part, loop, WindowLog(share=1 / part.ranks))
