"""Warns of a stall, collects the evidence about it, and reports it as a failure."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tfdist.launch.agent_program.clock import event_time
from tfdist.launch.agents.launcher_messages import Message, Note
from tfdist.launch.agents.messages import Reply, StacksDumped
from tfdist.launch.diagnosis.history import Stalled
from tfdist.launch.stalls import POLL_S, SecondLook, StallWatch, Suspicion
from tfdist.launch.task_group import TaskGroup

CHECK_S = 2.0
"""Most seconds between two checks; a longer pause means that the launcher was suspended."""


@dataclass
class StallGuard:
    """Does what a `StallWatch` decides."""

    tasks: TaskGroup
    fail: Callable[[Stalled, float], None]
    """Called with the stall, and the monotonic time."""
    took_steps: bool = False
    """An earlier attempt reported steps."""
    watch: StallWatch = field(init=False)

    def __post_init__(self) -> None:
        group = self.tasks
        self.watch = StallWatch(group.job, group.history, group.policy.stall_timeout_s, self.took_steps)

    def start(self, now: float) -> None:
        """Watch from now on, if the policy asks for it."""
        if self.tasks.policy.stall_timeout_s is not None:
            self._plan(now)

    def note(self, message: Message, now: float) -> None:
        """Take note of a sign of life."""
        text = self.watch.note(message, now)
        if text:
            self.tasks.announce(Note("tfdist", text))

    def forget(self, tasks: Collection[str]) -> None:
        """Give the tasks that are restarted the time to take a step."""
        self.watch.restart(time.monotonic())

    def _check(self, now: float) -> None:
        if self.tasks.stopped:
            return
        if not self.tasks.leaders:  # they wait for their start
            self.watch.restart(now)
        match self.watch.check(self.tasks.running, now, event_time()):
            case Suspicion(warning):
                self.tasks.announce(Note("tfdist", warning))
                self._save_stacks()
                self.tasks.inspect()
            case SecondLook():
                self.tasks.inspect()
            case Stalled() as stall:
                self.fail(stall, now)
        self._plan(now)

    def _plan(self, now: float) -> None:
        self.tasks.deadlines.set(self._check, now + max(POLL_S, min(CHECK_S, self.watch.deadline - now)))

    def _save_stacks(self) -> None:
        self.watch.missing_stacks = set(self.tasks.running)
        for task in self.tasks.running:
            self.tasks.history.stacks.pop(task, None)
        self.tasks.dump_stacks(self._note_stacks)

    def _note_stacks(self, reply: Reply) -> None:
        if isinstance(reply, StacksDumped):
            self.watch.missing_stacks -= reply.methods.keys()
