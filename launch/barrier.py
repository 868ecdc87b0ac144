"""The barrier at which the leading tasks of a job wait for each other, or for their next turn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfdist.launch.agents.messages import Release
from tfdist.launch.task_group import TaskGroup


@dataclass
class Barrier:
    """Opens when all leading tasks that have not exited wait at it."""

    tasks: TaskGroup
    paced: bool
    """It opens only for a `NextTurn`."""
    stop: Callable[[str], None]
    """Stop all tasks, for this reason."""
    waiting: set[str] = field(default_factory=set)
    turns: int = 0
    """Number of turns so far."""

    @property
    def complete(self) -> bool:
        """Whether tasks wait, and no other leading task is still to come."""
        return bool(self.waiting) and self.waiting | self.tasks.finished >= set(self.tasks.job.leading)

    def note(self, task: str) -> bool:
        """Note that a task has reached the barrier; returns whether a turn has ended with it."""
        self.waiting.add(task)
        return self.check()

    def check(self) -> bool:
        """Open the barrier if it is complete; returns whether a turn has ended instead."""
        if not self.complete:
            return False
        if not self.paced:
            self._open({})
            return False
        if not self.tasks.finished:
            # the CPU time that the turn took, and, once the task has started, the memory that it takes
            self.tasks.inspect(gpus=not self.turns)
            return True
        if not self.tasks.stopped:  # no turn can follow: it would wait for this task
            early = min(self.tasks.finished)
            self.stop(f"{early} exited with code 0 while other tasks wait for a turn")
        return False

    def start_turn(self, turn: Mapping[str, Any] | None) -> None:
        """Let the tasks continue for a turn."""
        self.turns += 1
        self.tasks.inspect()
        self._open(turn)

    def _open(self, turn: Mapping[str, Any] | None) -> None:
        for attempt in sorted({self.tasks.attempt(task) for task in self.waiting}):
            self.tasks.send_to_all(Release(attempt, turn))
        self.waiting.clear()
