"""What one task of a running job does. Times are monotonic seconds."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tfdist.launch.console.step_values import evaluation_values, step_values
from tfdist.launch.str_enum import StrEnum

RECENT = 8
"""Step events from which the speed is computed."""


class Activity(StrEnum):
    """What a task does, except for the phases that it reports itself."""

    WAITING = "waiting"
    """Not started yet."""
    STARTING = "starting"
    READY = "ready"
    SERVING = "serving"
    TRAINING = "training"
    AT_BARRIER = "at barrier"
    ENDING = "ending"
    """It has sent its record."""
    STOPPING = "stopping"
    DONE = "done"
    STOPPED = "stopped"
    NOT_STARTED = "not started"
    LOST = "host lost"
    STUCK = "cannot be killed"


TIMELESS = frozenset([Activity.WAITING, Activity.READY, Activity.SERVING, Activity.TRAINING])
"""Activities that are shown without their duration."""


@dataclass
class TaskState:
    """One attempt of a task."""

    name: str
    host: str = ""
    leads: bool = True
    serves: bool = False
    attempt: int = 0
    activity: str = Activity.WAITING
    """An `Activity`, a phase, or how the task has failed."""
    since: float = 0.0
    """Start of the activity."""
    connected: bool = False
    """It waits for the others in its strategy's constructor, or has a strategy, or serves."""
    ended: bool = False
    failed: bool = False
    step: int | None = None
    steps: int | None = None
    """The total, if known."""
    images_per_s: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    """Accuracy of the last checkpoint that an evaluator has evaluated; `step` is its step."""
    recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Times and numbers of the last steps since the last pause."""

    @property
    def in_cluster(self) -> bool:
        """Whether other tasks may wait for it; an evaluator is outside the cluster."""
        return self.leads or self.serves

    @property
    def started(self) -> bool:
        """Whether its process has been started."""
        return self.activity not in (Activity.WAITING, Activity.NOT_STARTED)

    @property
    def running(self) -> bool:
        """Whether its process exists, as far as is known."""
        return self.started and not self.ended

    def enter(self, activity: str, now: float) -> None:
        """Start an activity; the one that it is in already continues."""
        if activity != self.activity:
            self.activity, self.since = activity, now

    def end(self, activity: str, now: float, failed: bool) -> None:
        """Enter the last activity."""
        self.enter(activity, now)
        self.ended, self.failed = True, failed

    def left_s(self, now: float) -> float | None:
        """Seconds until the last step, from the recent steps; None if unknown.

        While a step is overdue, it counts as if it were done now.
        """
        if self.ended or self.steps is None or self.step is None or self.step >= self.steps or len(self.recent) < 2:
            return None
        (first_at, first), (last_at, last) = self.recent[0], self.recent[-1]
        longest_s = max(later[0] - earlier[0] for earlier, later in pairwise(self.recent))
        elapsed_s = max(last_at, now - longest_s) - first_at
        if elapsed_s <= 0:
            return None
        left_s = elapsed_s * (self.steps - last) / (last - first)
        return max(0.0, left_s - min(now - last_at, longest_s))

    def note_step(self, event: Mapping[str, Any], now: float) -> None:
        """Note the values of a `step` event."""
        self.step, self.steps, self.images_per_s, self.loss = step_values(event)
        if self.recent and (self.step is None or self.step <= self.recent[-1][1]):
            self.recent.clear()
        if self.step is not None:
            self.recent.append((now, self.step))

    def note_evaluation(self, event: Mapping[str, Any]) -> None:
        """Note the values of an `evaluation` event."""
        self.step, self.accuracy = evaluation_values(event)
