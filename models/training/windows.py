"""The clock of a training: logs warm-up and timed windows, and is read between windows only."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tfdist.launch import events
from tfdist.launch.events import Phase
from tfdist.models.record import Window
from tfdist.models.training.schedule import Schedule


@dataclass
class WindowLog:
    """Call `open` before the first step of each window and `close` after the device has finished its last one.

    There is no gap between windows, except for the start barrier before the first timed one.
    """

    schedule: Schedule
    share: float = 1.0
    """The part of the job's examples, 0..1, that this rank counts."""
    agree: Callable[[float], float] = lambda elapsed_s: elapsed_s
    """From this rank's elapsed seconds to the value by which all ranks together decide that the warm-up is over."""
    wait: Callable[[], object] = events.wait_at_barrier
    clock: Callable[[], float] = time.perf_counter
    warmup: list[Window] = field(default_factory=list)
    timed: list[Window] = field(default_factory=list)
    opened_at: float = 0.0
    """The clock at the start of the first window; 0.0 before it."""
    first_step_at: float = 0.0
    """The clock at the end of the first step, tracing included; 0.0 before it."""
    _agreed: list[float] = field(default_factory=list)
    _edge: float | None = None
    _waited: bool = False
    _done: int = 0

    @property
    def warm(self) -> bool:
        """Whether the next window is timed."""
        return self._waited or self.schedule.is_warm(tuple(self._agreed))

    @property
    def windows(self) -> tuple[Window, ...]:
        """All windows so far."""
        return (*self.warmup, *self.timed)

    def open(self) -> None:
        """Start a window; before the first timed one, wait for the other ranks."""
        if self.warm and not self._waited:
            self.wait()
            self._waited, self._edge = True, None
        if not self.opened_at:
            events.emit("phase", phase=Phase.TRACING)
            self.opened_at = self._edge = self.clock()
        elif self._edge is None:
            self._edge = self.clock()

    def first_step(self) -> None:
        """Note the time of the first step's end; later calls do nothing."""
        if not self.first_step_at:
            self.first_step_at = self.clock()

    def close(self, steps: int, examples: int, loss: float) -> None:
        """End a window of `steps` steps and `examples` examples of this rank, and report it to the launcher."""
        if self._edge is None:
            raise RuntimeError("close() without open()")
        now = self.clock()
        elapsed, self._edge = now - self._edge, now
        window = Window(steps, examples, elapsed, loss)
        self._done += steps
        if self._waited:
            self.timed.append(window)
        else:
            self.warmup.append(window)
            self._agreed.append(self.agree(elapsed))
        rate = examples / self.share / elapsed
        events.emit("step", step=self._done, steps=self.schedule.steps, images_per_s=rate, loss=loss)
