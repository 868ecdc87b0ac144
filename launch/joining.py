"""Notices workers that wait for one that will never join their cluster: TensorFlow waits up to an hour, in silence."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tfdist.launch.agents.inbox import Message, Note
from tfdist.launch.agents.messages import Event, Listening, Release
from tfdist.launch.diagnosis.history import Freeze, History, NotFinite, NotJoined, ProcessState
from tfdist.launch.job import Job
from tfdist.launch.task_group import TaskGroup

FREEZE_CHECK_S = 2.5
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
            self.tasks.deadlines.set(self.check, now + FREEZE_CHECK_S)

    def check(self, now: float) -> None:
        """Look at the answers to the last request, and ask again."""
        if self.tasks.stopped:
            return
        paused, self.checked_at = now - self.checked_at > PAUSE_S, now
        states = {task: self.tasks.history.states.get(task) for task in sorted(self.tasks.running)}
        stopped = {task: state.time for task, state in states.items() if state is not None and state.state == "T"}
        stopped = {} if paused else stopped
        self.since = {task: self.since.get(task, time) for task, time in stopped.items()}
        self.tasks.deadlines.set(self.check, now + FREEZE_CHECK_S)
        frozen = [task for task, time in stopped.items() if time - self.since[task] >= FROZEN_S]
        if frozen:
            self.fail(Freeze(tuple(frozen), stopped[frozen[0]]), now)
        self.tasks.inspect()


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
