"""What the tasks of a running job do, from its messages. No I/O: tests replay messages."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tfdist.launch.agents.inbox import AgentLost, Message, Restarting, Stopped
from tfdist.launch.agents.messages import Event, Exited, Listening, NotStarted, Started, Stuck, TaskMessage
from tfdist.launch.diagnosis.straggler import WorkerSteps
from tfdist.launch.events import Phase
from tfdist.launch.job import Job
from tfdist.launch.str_enum import StrEnum
from tfdist.launch.text import signal_name


def step_values(event: Mapping[str, Any]) -> tuple[int | None, int | None, float | None, float | None]:
    """Step, number of steps, images/s and loss of a `step` event, which may hold anything; None: not in it."""
    step, steps, images_per_s, loss = map(event.get, ("step", "steps", "images_per_s", "loss"))
    return _count(step), _count(steps) or None, _number(images_per_s), _number(loss)


def step_text(step: int | None, steps: int | None) -> str:
    """`20/100`, `20` without a total, empty without a step."""
    if step is None:
        return ""
    return f"{step}/{steps}" if steps else str(step)


def number_text(value: float | None, form: str) -> str:
    """The number in this format; empty if there is none."""
    return "" if value is None else format(value, form)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**63 else None


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:  # an int beyond the range of a float
        return None


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
    """Accuracy, 0..1, of the last checkpoint that an evaluator has evaluated; `step` is its step."""
    recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Times and numbers of the last steps since the last pause."""

    @property
    def running(self) -> bool:
        """Whether its process exists, as far as is known."""
        return not self.ended and self.activity != Activity.WAITING

    @property
    def progress(self) -> float | None:
        """The share of the steps that are done, 0..1; None: unknown."""
        return min(1.0, self.step / self.steps) if self.step is not None and self.steps else None

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


MOST_PHASE = 30
"""Characters of a phase that are kept."""


def _role(task: str) -> str:
    return task.rpartition("-")[0]


def state_of(job: Job) -> "JobState":
    """The state of a job before its start."""
    state = JobState()
    for plan in job.plans:
        name = plan.task.name
        role = job.roles[plan.task.role]
        state.tasks[name] = TaskState(name, plan.host.name, role.leads, role.serves)
    state.forget_steps()
    return state


@dataclass
class JobState:
    """The tasks of a job. Tasks that it does not know are added when their first message arrives."""

    tasks: dict[str, TaskState] = field(default_factory=dict)
    failed: str = ""
    """What failed first: a task or a host."""
    failed_at: float = 0.0
    stopped_at: float | None = None
    """When the launcher began to stop tasks."""
    steps: WorkerSteps = field(default_factory=lambda: WorkerSteps(()))
    """How long the workers need for a step, and wait for each other."""

    def forget_steps(self) -> None:
        """Judge by the steps that follow: leading tasks train together, or the chief's workers each on their own."""
        workers = [name for name in self.tasks if name.startswith("worker-")]
        serving = any(task.serves for task in self.tasks.values())
        self.steps = WorkerSteps([task.name for task in self.leading], workers if serving else ())

    @property
    def running(self) -> list[TaskState]:
        """Tasks that have been started and have not ended."""
        return [task for task in self.tasks.values() if task.running]

    @property
    def leading(self) -> list[TaskState]:
        """Tasks whose exits end the job."""
        return [task for task in self.tasks.values() if task.leads]

    def left_s(self, now: float) -> float | None:
        """Seconds until the last task has taken its last step; None if unknown."""
        return max((left for task in self.tasks.values() if (left := task.left_s(now)) is not None), default=None)

    def update(self, message: Message, now: float) -> bool:
        """Apply a message; returns whether it changed anything. `now`: its arrival."""
        match message:
            case TaskMessage(name, attempt=attempt):
                task = self.tasks.setdefault(name, TaskState(name))
                return attempt >= task.attempt and self._update_task(task, message, now)
            case AgentLost(host):
                for task in self.tasks.values():
                    if task.host == host and not task.ended:
                        task.end(Activity.LOST, now, failed=True)
                self._note_failure(host, now)
            case Stopped(names):
                self.stopped_at = now if self.stopped_at is None else self.stopped_at
                stopped = set(names)
                for task in self.running:
                    if task.name in stopped:
                        task.enter(Activity.STOPPING, now)
            case Restarting():
                self._restart(message, now)
            case _:
                return False
        return True

    def _note_failure(self, name: str, now: float) -> None:
        if not self.failed:
            self.failed, self.failed_at = name, now

    def _restart(self, restarting: Restarting, now: float) -> None:
        before, self.failed, self.stopped_at = self.tasks, "", None
        self.tasks = {} if restarting.whole else dict(before)  # maybe fewer tasks than before, or others
        hosts = dict(zip(restarting.tasks, restarting.hosts, strict=False))
        peers = {_role(name): task for name, task in before.items()}
        for name in restarting.tasks:
            # a new task leads and serves as the others of its role
            like = before.get(name) or peers.get(_role(name)) or TaskState(name)
            host = hosts.get(name, like.host if name in before else "")
            self.tasks[name] = TaskState(name, host, like.leads, like.serves, restarting.attempt, since=now)
        self.forget_steps()

    def _update_task(self, task: TaskState, message: TaskMessage, now: float) -> bool:
        if isinstance(message, Event) and (task.ended or task.activity == Activity.STOPPING):
            return not task.ended
        match message:
            case Event(event=event):
                self._note_event(task, event, now)
            case Started(attempt=attempt):
                if attempt > task.attempt:
                    self.failed, self.stopped_at = "", None
                started = TaskState(task.name, task.host, task.leads, task.serves, attempt)
                started.enter(Activity.STARTING, now)
                self.tasks[task.name] = started
            case Listening() if task.serves:
                task.enter(Activity.SERVING, now)
                task.connected = True
            case NotStarted():
                self._fail(task, Activity.NOT_STARTED, now)
            case Stuck():
                self._fail(task, Activity.STUCK, now)
            case Exited(code=code):
                early = task.serves and self.stopped_at is None and any(leader.running for leader in self.leading)
                if code == 0 and not early:
                    task.end(Activity.DONE, now, failed=False)
                elif task.activity == Activity.STOPPING:
                    task.end(Activity.STOPPED, now, failed=False)
                else:
                    self._fail(task, f"exit code {code}" if code >= 0 else signal_name(-code), now)
            case _:
                return False
        return True

    def _note_event(self, task: TaskState, event: Mapping[str, Any], now: float) -> None:
        """Apply an event that a task has reported. It may hold anything."""
        match event:
            case {"event": "phase", "phase": str() as phase}:
                shown = (character if character.isprintable() else " " for character in phase[:MOST_PHASE])
                task.enter("".join(shown).strip(), now)
                task.connected |= phase == Phase.CONNECTING
            case {"event": "ready"}:
                task.enter(Activity.SERVING if task.serves else Activity.READY, now)
                task.connected = True
            case {"event": "barrier"}:
                task.enter(Activity.AT_BARRIER, now)
                if all(each.activity == Activity.AT_BARRIER for each in self.tasks.values() if each.leads):
                    self._open_barrier(now)
            case {"event": "step"}:
                task.connected = True
                task.enter(Activity.TRAINING, now)
                task.note_step(event, now)
                self.steps.note(task.name, event, now)
            case {"event": "evaluation"}:
                task.enter(Activity.READY, now)
                task.step, task.accuracy = _count(event.get("step")), _number(event.get("accuracy"))
            case {"event": "record"}:
                task.enter(Activity.ENDING, now)

    def _open_barrier(self, now: float) -> None:
        """The launcher releases the tasks at the barrier when all leading ones are there."""
        for task in self.leading:
            task.enter(Activity.READY if task.step is None else Activity.TRAINING, now)
            task.recent.clear()
            if task.step is not None:
                task.recent.append((now, task.step))

    def _fail(self, task: TaskState, activity: str, now: float) -> None:
        task.end(activity, now, failed=True)
        self._note_failure(task.name, now)
