"""Warns of the first loss that is not finite, or stops the job because of it."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tfdist.launch.agents.launcher_messages import Message, Note
from tfdist.launch.agents.messages import Event
from tfdist.launch.diagnosis.history import NotFinite
from tfdist.launch.task_group import TaskGroup


@dataclass
class LossWatch:
    """Reads the losses in `step` events."""

    tasks: TaskGroup
    fail: Callable[[NotFinite, float], None]
    """Called with the loss, and the monotonic time, if the policy stops the job for it."""
    warned: bool = False

    def note(self, message: Message, now: float) -> None:
        """Look at a message."""
        match message:
            case Event(task, time, event={"event": "step", "step": int() as step, "loss": float() as loss}):
                if not self.warned and not math.isfinite(loss):
                    self.warned = True
                    self._take(NotFinite(task, step, loss, time), now)

    def _take(self, bad: NotFinite, now: float) -> None:
        if self.tasks.policy.stop_on_nan:
            self.fail(bad, now)
        else:
            what = f"loss of {bad.task} is {bad.loss} at step {bad.step}"
            self.tasks.announce(Note("tfdist", f"{what}; the training continues (--set stop_on_nan=true stops it)"))

    def forget(self, tasks: Collection[str]) -> None:
        """Warn again after a restart."""
        self.warned = False
