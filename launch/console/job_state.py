"""What the tasks of a running job do, from its messages. No I/O: tests replay messages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfdist.launch.agents.inbox import AgentLost, Message, Restarting, Stopped
from tfdist.launch.agents.messages import Event, Exited, Listening, NotStarted, Started, Stuck, TaskMessage
from tfdist.launch.console.task_state import Activity, TaskState
from tfdist.launch.events import Phase
from tfdist.launch.job import Job
from tfdist.launch.text import signal_name

MOST_PHASE = 30
"""Characters of a phase that are kept."""


def state_of(job: Job) -> "JobState":
    """The state of a job before its start."""
    return JobState(
        {
            plan.task.name: TaskState(
                plan.task.name,
                plan.host.name,
                leads=job.roles[plan.task.role].leads,
                serves=job.roles[plan.task.role].serves,
            )
            for plan in job.plans
        }
    )


@dataclass
class JobState:
    """The tasks of a job. Tasks that it does not know are added when their first message arrives."""

    tasks: dict[str, TaskState] = field(default_factory=dict)
    failed: str = ""
    """What failed first: a task or a host."""
    failed_at: float = 0.0
    stopped_at: float | None = None
    """When the launcher began to stop tasks."""

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
                if attempt >= task.attempt:
                    return self._update_task(task, message, now)
            case AgentLost(host):
                self._lose([task for task in self.tasks.values() if task.host == host and not task.ended], host, now)
                return True
            case Stopped(names):
                self._stop([self.tasks[name] for name in names if name in self.tasks], now)
                return True
            case Restarting():
                self._restart(message, now)
                return True
        return False

    def _restart(self, restarting: Restarting, now: float) -> None:
        self.failed, self.stopped_at = "", None
        if restarting.whole:  # with fewer tasks than before, or with others
            self.tasks = {name: self.tasks.get(name) or self._like(name) for name in restarting.tasks}
        hosts = dict(zip(restarting.tasks, restarting.hosts, strict=False))
        for name in restarting.tasks:
            old = self.tasks.setdefault(name, TaskState(name))
            host = hosts.get(name, old.host)
            self.tasks[name] = TaskState(name, host, old.leads, old.serves, restarting.attempt, since=now)

    def _like(self, name: str) -> TaskState:
        """A new task: it leads and serves as the others of its role."""
        role = name.rpartition("-")[0]
        peer = next((task for task in self.tasks.values() if task.name.rpartition("-")[0] == role), TaskState(name))
        return TaskState(name, leads=peer.leads, serves=peer.serves)

    def _update_task(self, task: TaskState, message: TaskMessage, now: float) -> bool:
        match message:
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
                self._end(task, Activity.NOT_STARTED, now, failed=True)
            case Stuck():
                self._end(task, Activity.STUCK, now, failed=True)
            case Exited(code=code):
                self._exit(task, code, now)
            case Event(event=event) if not task.ended:
                self._event(task, event, now)
            case _:
                return False
        return True

    def _event(self, task: TaskState, event: Mapping[str, Any], now: float) -> None:
        if task.activity == Activity.STOPPING:
            return
        match event:
            case {"event": "phase", "phase": str() as phase}:
                task.enter(_printable(phase), now)
                task.connected |= phase == Phase.CONNECTING
            case {"event": "ready"}:
                task.enter(Activity.SERVING if task.serves else Activity.READY, now)
                task.connected = True
            case {"event": "barrier"}:
                task.enter(Activity.AT_BARRIER, now)
                self._open_barrier(now)
            case {"event": "step"}:
                task.connected = True
                task.enter(Activity.TRAINING, now)
                task.note_step(event, now)
            case {"event": "evaluation"}:
                task.enter(Activity.READY, now)
                task.note_evaluation(event)
            case {"event": "record"}:
                task.enter(Activity.ENDING, now)

    def _open_barrier(self, now: float) -> None:
        """The launcher releases the tasks at the barrier when all leading ones are there."""
        if all(task.activity == Activity.AT_BARRIER for task in self.leading):
            for task in self.leading:
                task.enter(Activity.TRAINING if task.step is not None else Activity.READY, now)
                task.recent.clear()
                if task.step is not None:
                    task.recent.append((now, task.step))

    def _exit(self, task: TaskState, code: int, now: float) -> None:
        early = task.serves and self.stopped_at is None and any(leader.running for leader in self.leading)
        if code == 0 and not early:
            self._end(task, Activity.DONE, now, failed=False)
        elif task.activity == Activity.STOPPING:
            self._end(task, Activity.STOPPED, now, failed=False)
        else:
            self._end(task, _exit_text(code), now, failed=True)

    def _end(self, task: TaskState, activity: str, now: float, failed: bool) -> None:
        task.end(activity, now, failed)
        if failed and not self.failed:
            self.failed, self.failed_at = task.name, now

    def _lose(self, tasks: Iterable[TaskState], host: str, now: float) -> None:
        for task in tasks:
            task.end(Activity.LOST, now, failed=True)
        if not self.failed:
            self.failed, self.failed_at = host, now

    def _stop(self, tasks: Iterable[TaskState], now: float) -> None:
        self.stopped_at = now if self.stopped_at is None else self.stopped_at
        for task in tasks:
            if task.running:
                task.enter(Activity.STOPPING, now)


def _printable(phase: str) -> str:
    return "".join(character if character.isprintable() else " " for character in phase[:MOST_PHASE]).strip()


def _exit_text(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal_name(-code)
