"""Starts of tasks that wait: for a delay, or for the processes of the attempt before to end."""

from collections.abc import Collection
from dataclasses import dataclass, field

from tfdist.launch.agents.launcher_messages import Message
from tfdist.launch.agents.messages import Exited, Stuck
from tfdist.launch.deadlines import Action
from tfdist.launch.task_group import TaskGroup


@dataclass
class PendingStart:
    """Tasks that will be started together."""

    tasks: set[str]
    at: float
    """Monotonic time before which they are not started."""


@dataclass
class PendingStarts:
    """Starts the present attempts of tasks as soon as they may be started."""

    group: TaskGroup
    after_start: Action
    """Called when tasks have been started."""
    waiting: list[PendingStart] = field(default_factory=list)

    @property
    def tasks(self) -> set[str]:
        """The tasks that will be started."""
        return {task for start in self.waiting for task in start.tasks}

    def add(self, tasks: Collection[str], at: float) -> None:
        """Start these tasks at that monotonic time, or later if they still run then."""
        for start in self.waiting:
            start.tasks -= set(tasks)
        self.waiting.append(PendingStart(set(tasks), at))
        self._set_deadline()

    def cancel(self) -> None:
        """Start nothing any more."""
        self.waiting.clear()
        self.group.deadlines.cancel(self.start_due)

    def note_end(self, message: Message) -> None:
        """Take a message about an earlier attempt of a task: if its process has ended, the next one may start."""
        if isinstance(message, Exited | Stuck) and message.task in self.tasks:
            self.group.running.discard(message.task)
            self._set_deadline()

    def start_due(self, now: float) -> None:
        """Start the tasks whose time has come."""
        for start in [start for start in self._unblocked() if start.at <= now]:
            self.waiting.remove(start)
            self.group.start(start.tasks)
            self.after_start(now)
        self._set_deadline()

    def _unblocked(self) -> list[PendingStart]:
        return [start for start in self.waiting if not start.tasks & self.group.running]

    def _set_deadline(self) -> None:
        times = [start.at for start in self._unblocked()]
        if times:
            self.group.deadlines.set(self.start_due, min(times))
