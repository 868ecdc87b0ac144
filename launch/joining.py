"""Notices workers that wait for one that will never join their cluster: TensorFlow waits up to an hour, in silence."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from tfdist.launch.agents.messages import Listening
from tfdist.launch.diagnosis.history import History, NotJoined, ProcessState
from tfdist.launch.job import Job

CHECK_S = 2.0
"""Seconds between two checks of the workers that may wait."""
QUIET_S = 5.0
"""A worker that wrote a line, or a step, so recently does not wait."""
IDLE_CPU = 0.1
"""Share of a core that a waiting process uses at most."""


@dataclass
class JoinWatch:
    """Compares the processes of workers that may wait from one check to the next: one that trains uses its cores.

    A job whose tasks never listen on their ports builds no cluster, and is left alone.
    """

    job: Job
    history: History
    missing: str = ""
    """The worker that exited with code 0 without having listened on its port."""
    seen: dict[str, ProcessState] = field(default_factory=dict)
    """The processes at the last check."""

    def note_exit(self, task: str) -> bool:
        """Take note that a task exited with code 0; returns whether others may wait for it."""
        if self.missing or task not in self.job.leading or task not in self._with_port or task in self._listening():
            return False
        self.missing = task
        return True

    def check(self, running: Collection[str], now: float) -> NotJoined | None:
        """What this check and the last one show; None while a leading task is busy, or does not listen yet.

        Args:
            running: the tasks that run.
            now: seconds since 1970.
        """
        leaders = [task for task in self.job.leading if task in running]
        waiting = bool(leaders) and all(self._waits(task, now) for task in leaders)
        self.seen = dict(self.history.states)
        return NotJoined(self.missing, tuple(leaders), now) if waiting else None

    @cached_property
    def _with_port(self) -> set[str]:
        return {plan.task.name for plan in self.job.plans if self.job.cluster.port(plan.task)}

    def _listening(self) -> set[str]:
        return {entry.task for entry in self.history.select(Listening)}

    def _waits(self, task: str, now: float) -> bool:
        before, state = self.seen.get(task), self.history.states.get(task)
        if task not in self._listening() or before is None or state is None or before is state:
            return False
        return now - self.history.last_sign(task) >= QUIET_S and state.cpu_s - before.cpu_s <= IDLE_CPU * CHECK_S
