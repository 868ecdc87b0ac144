"""The clock of a training: read at window edges only, it tells warm-up from what is timed and writes both down."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tfdist.launch import events
from tfdist.models.record import Window
from tfdist.models.training.schedule import Schedule


def alone(elapsed_s: float) -> float:
    """What all ranks agree that a window took, where a rank has nobody to agree with."""
    return elapsed_s


@dataclass
class WindowLog:
    """Call `open` before each window's first step and `close` after its last one has really finished.

    Windows follow each other without a gap, but for the start barrier before the first timed one.
    """

    schedule: Schedule
    share: float = 1.0
    """Which part of the whole job's examples this rank counts."""
    agree: Callable[[float], float] = alone
    """From this rank's elapsed seconds to the one number by which all ranks decide that they are warm."""
    wait: Callable[[], None] = events.wait_for_the_others
    clock: Callable[[], float] = time.perf_counter
    warmup: list[Window] = field(default_factory=list)
    timed: list[Window] = field(default_factory=list)
    opened_at: float | None = None
    """The clock at the first window's start."""
    first_step_at: float | None = None
    """The clock when the very first step, tracing included, had really finished."""
    _agreed: list[float] = field(default_factory=list)
    _edge: float | None = None
    _waited: bool = False

    @property
    def warm(self) -> bool:
        """Whether the next window is a timed one."""
        return self._waited or self.schedule.is_warm(tuple(self._agreed))

    def open(self) -> None:
        """Start the clock, unless it is running; before the first timed window, wait for the other ranks."""
        if self.warm and not self._waited:
            self.wait()
            self._waited, self._edge = True, None
        if self._edge is None:
            self._edge = self.clock()
        if self.opened_at is None:
            self.opened_at = self._edge

    def first_step(self) -> None:
        """Say that a step has really finished; only the first time counts."""
        if self.first_step_at is None:
            self.first_step_at = self.clock()

    def close(self, steps: int, examples: int, loss: float) -> None:
        """End a window of `steps` steps and `examples` examples of this rank, and tell the launcher."""
        if self._edge is None:
            raise RuntimeError("a window that was never opened")
        now = self.clock()
        elapsed, self._edge = now - self._edge, now
        window = Window(steps, examples, elapsed, loss)
        if self._waited:
            self.timed.append(window)
        else:
            self.warmup.append(window)
            self._agreed.append(self.agree(elapsed))
        done = sum(window.steps for window in (*self.warmup, *self.timed))
        events.emit("step", step=done, images_per_s=examples / self.share / elapsed, loss=loss)
