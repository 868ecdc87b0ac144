"""Connects the steps of a program with its launcher: windows for the display, or turns. No TensorFlow."""

from collections.abc import Callable, Iterator
from typing import Any

from tfdist.launch import events
from tfdist.models.custom.windows import ProgramLoop, Stepping
from tfdist.models.record import Window
from tfdist.models.training import pace
from tfdist.models.training.windows import WindowLog, step_s

REPORT_S = 2.0
"""Seconds of a window that is only displayed."""


class Stepper:
    """Call `start` before the first step of a loop and `done` after each step; both say whether to train another one.

    In turns, the second of two loops continues where the first one was.
    """

    def __init__(
        self,
        loop: ProgramLoop,
        concurrent: int,
        log: WindowLog,
        report: Callable[[tuple[Window, ...], int], None],
    ) -> None:
        """Connect.

        Args:
            loop: of the program.
            concurrent: as `pace.Loop.concurrent`.
            log: a fresh one.
            report: sends the record, from the warm-up windows and the number of steps trained so far.
        """
        self.loop, self.concurrent, self.log, self.report = loop, concurrent, log, report
        self.trained = 0
        """Number of steps."""
        self._stepping: Stepping | None = None
        self._more = True

    @property
    def unfinished(self) -> bool:
        """The launcher has turns to release, or may have."""
        return events.in_turns() and self._more

    def continue_from(self, step: int) -> None:
        """Count the steps that are reported from this one on, unless a loop has been started before."""
        if self._stepping is None:
            self.log.steps = step

    def start(self) -> bool:
        """Start a loop."""
        if self._stepping is None or not events.in_turns():
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
        self.trained += 1
        try:
            self._stepping.send(result)
        except StopIteration:
            self._more = False
        return self._more

    def _turns(self) -> Stepping:
        self.log.quiet = True
        yield from self.loop.windows((1, pace.OPENING_STEPS * self.concurrent), self.log)
        opening = self.log.take()
        self.report(opening, self.trained)
        for turn in pace.turns(self.log, self.concurrent, step_s(opening[1:]) * self.concurrent):
            yield from self.loop.windows(turn.sizes, self.log, turn.before, turn.after)
        self.report(opening, self.trained)

    def _displayed(self) -> Iterator[int]:
        """Sizes of windows that take about `REPORT_S`."""
        size = 1
        while True:
            yield size
            windows = self.log.take()
            size = max(1, round(REPORT_S / step_s(windows))) if windows else size
