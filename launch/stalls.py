"""Notices a job that takes no more steps, and reports it with evidence. TensorFlow itself waits without a limit."""

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tfdist.launch.agent_program.clock import event_time
from tfdist.launch.agents.inbox import Message, Note
from tfdist.launch.agents.messages import Event, Exited, Output, Reply, StacksDumped, Started
from tfdist.launch.diagnosis.history import History, ProcessState, Stall
from tfdist.launch.job import Job
from tfdist.launch.task_group import TaskGroup
from tfdist.launch.text import shortened

CHECK_S = 2.0
"""Most seconds between two checks; a longer pause means that the launcher was suspended."""


CPU_S = 2.0
"""Seconds over which the CPU time of the tasks' processes is compared."""
EVIDENCE_S = 25.0
"""Time for the stacks of all tasks; an agent needs 21 s at most."""
POLL_S = 0.2
"""Seconds between two checks whether the evidence is complete."""
PAUSE_S = 10.0
"""Pause between two checks above which the time starts again: the launcher was suspended."""
SAVED = "the stacks of all tasks are saved in stacks.txt, beside their logs"
MOST_STEPS = 8
"""Tasks whose last step is in the warning."""


@dataclass(frozen=True)
class Suspicion:
    """Warn, save the stacks of all tasks, and look at their processes."""

    warning: str


@dataclass(frozen=True)
class SecondLook:
    """Look at the processes again, to compare their CPU times."""


@dataclass
class StallWatch:
    """Events of leading tasks are signs of life, before the first step their output is one too.

    In a job without steps any task's output is one, and its silence leads to one warning only; to none if the job is
    led elsewhere. Times are monotonic, except those in the history.
    """

    job: Job
    history: History
    timeout_s: float | None
    """None: do not watch."""
    took_steps: bool = False
    """The job has reported steps, maybe in an earlier attempt."""
    missing_stacks: set[str] = field(default_factory=set)
    """Tasks whose stacks were requested and have not arrived."""
    _last_sign: float = field(default_factory=time.monotonic)
    _last_check: float = -math.inf
    _suspected_at: float | None = None
    _before: dict[str, ProcessState] | None = None
    """The processes at the first look, once the second one is due."""
    _warned: bool = False
    """Whether a job without steps was warned of."""

    @property
    def deadline(self) -> float:
        """When to check next; infinity if there is nothing to watch."""
        watched = self._takes_steps or not (self._warned or self.job.led_elsewhere)
        if self.timeout_s is None or not watched:
            return math.inf
        if self._suspected_at is None:
            return self._last_sign + self.timeout_s
        return self._suspected_at + CPU_S if self._before is None else self._last_check + POLL_S

    def note(self, message: Message, at: float) -> str:
        """Take note of a message about the present attempt; returns a note for the user if it ends a suspicion."""
        if not self._is_sign(message):
            return ""
        self.took_steps = self.took_steps or bool(self.history.steps)
        silence_s, suspected = at - self._last_sign, self._suspected_at is not None
        self.restart(at)
        return f"the job continues after {silence_s:.0f} s without a step" if suspected else ""

    def restart(self, now: float) -> None:
        """Count the time from now on, and end a suspicion."""
        self._last_sign, self._suspected_at, self._before = max(now, self._last_sign), None, None

    def check(self, running: Collection[str], now: float, time_now: float) -> Suspicion | SecondLook | Stall | None:
        """What to do now.

        Args:
            running: the tasks that run.
            now: monotonic.
            time_now: seconds since 1970.
        """
        if PAUSE_S < now - self._last_check < math.inf:
            self._last_sign = max(self._last_sign, now)
        due, self._last_check = self.deadline <= now, now
        if not due:
            return None
        if self._suspected_at is None:
            return self._suspect(running, now)
        if self._before is None:
            self._before = dict(self.history.states)
            return SecondLook()
        compared = all(self.history.states.get(task) is not self._before.get(task) for task in running)
        if (compared and not self.missing_stacks) or now >= self._suspected_at + EVIDENCE_S:
            self._last_sign, self._suspected_at = math.inf, None
            return Stall(self.timeout_s or 0.0, time_now, _cores_used(self._before, self.history.states, running))
        return None

    @property
    def _takes_steps(self) -> bool:
        return self.took_steps or self.job.reports_steps

    def _is_sign(self, message: Message) -> bool:
        match message:
            case Started() | Exited():
                return True
            case Event(task):
                return task in self.job.leading
            case Output(task, stream) if stream != "stacks":
                return not self.history.steps and (task in self.job.leading or not self._takes_steps)
        return False

    def _suspect(self, running: Collection[str], now: float) -> Suspicion:
        if not self._takes_steps:
            self._warned = True
            why = "the job is not stopped, because it reports no steps"
            return Suspicion(f"no output or event for {self.timeout_s:g} s; {SAVED}; {why}")
        self._suspected_at = now
        steps = {task: self.history.steps.get(task, (0, 0.0))[0] for task in self.job.leading if task in running}
        texts = [f"{task} {f'at step {step}' if step else 'before its first step'}" for task, step in steps.items()]
        what = f"no step for {self.timeout_s:g} s ({shortened(texts, MOST_STEPS)})"
        return Suspicion(f"{what}; {SAVED}")


def _cores_used(
    before: Mapping[str, ProcessState], after: Mapping[str, ProcessState], tasks: Collection[str]
) -> dict[str, float]:
    """CPU seconds per second between two looks at the same process."""
    used = {}
    for task in sorted(tasks):
        first, last = before.get(task), after.get(task)
        if first is not None and last is not None and last.time > first.time:
            used[task] = (last.cpu_s - first.cpu_s) / (last.time - first.time)
    return used


@dataclass
class StallGuard:
    """Does what a `StallWatch` decides."""

    tasks: TaskGroup
    fail: Callable[[Stall, float], None]
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
            case Stall() as stall:
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
