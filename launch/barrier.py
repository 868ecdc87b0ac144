"""The barrier at which the leading tasks of a job wait for each other, or for their next turn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfdist.launch.agents.messages import Release
from tfdist.launch.task_group import TaskGroup


@dataclass
class Barrier:
    """Opens when all leading tasks that have not exited wait at it."""

    tasks: TaskGroup
    waiting: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether tasks wait, and no other leading task is still to come."""
        return bool(self.waiting) and self.waiting | self.tasks.finished >= set(self.tasks.job.leading)

    def open(self, turn: Mapping[str, Any] | None) -> None:
        """Let the tasks continue: for a turn, or for good (None)."""
        for attempt in sorted({self.tasks.attempt(task) for task in self.waiting}):
            self.tasks.send_to_all(Release(attempt, turn))
