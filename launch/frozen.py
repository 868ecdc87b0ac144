"""Notices processes that a signal has stopped (SIGSTOP, a suspended cgroup): their peers may wait for them for ever."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from tfdist.launch.diagnosis.history import Freeze
from tfdist.launch.task_group import TaskGroup

CHECK_S = 2.5
"""Seconds between two checks: each host answers one small request."""
FROZEN_S = 10.0
"""A process that is stopped for this long counts as failed."""
PAUSE_S = 10.0
"""Pause between two checks above which the time starts again: a scheduler has suspended the launcher, and maybe
all tasks."""


@dataclass
class FrozenWatch:
    """Compares the states of processes from one check to the next. A process under a debugger (state t) is left alone.

    A job without a cluster is left alone, too: none of its tasks waits for another.
    """

    tasks: TaskGroup
    fail: Callable[[Freeze, float], None]
    """Called with a task that has failed, and the monotonic time."""
    checked_at: float = math.inf
    """Monotonic time of the last check."""
    since: dict[str, float] = field(default_factory=dict)
    """When each stopped process was first seen as such, in seconds since 1970."""

    def start(self, now: float) -> None:
        """Check from now on."""
        if self.tasks.job.cluster.addresses:
            self.checked_at = now
            self.tasks.deadlines.set(self.check, now + CHECK_S)

    def check(self, now: float) -> None:
        """Look at the answers to the last request, and ask again."""
        if self.tasks.stopped:
            return
        paused, self.checked_at = now - self.checked_at > PAUSE_S, now
        states = {task: self.tasks.history.states.get(task) for task in sorted(self.tasks.running)}
        stopped = {task: state.time for task, state in states.items() if state is not None and state.state == "T"}
        stopped = {} if paused else stopped
        self.since = {task: self.since.get(task, time) for task, time in stopped.items()}
        self.tasks.deadlines.set(self.check, now + CHECK_S)
        frozen = [task for task, time in stopped.items() if time - self.since[task] >= FROZEN_S]
        if frozen:
            self.fail(Freeze(tuple(frozen), stopped[frozen[0]]), now)
        self.tasks.inspect()
