"""Restarts tasks of a running job while the others continue."""

from collections.abc import Collection
from dataclasses import dataclass, field

from tfdist.launch.agent_program.clock import event_time
from tfdist.launch.agents.launcher_messages import AgentLost, Message, Restarting
from tfdist.launch.agents.messages import Exited, NotStarted, Stuck
from tfdist.launch.attempts import AttemptLog
from tfdist.launch.deadlines import Action
from tfdist.launch.diagnosis.diagnose import diagnose
from tfdist.launch.diagnosis.history import ReportedError
from tfdist.launch.restarts import Restart, announcement, decide
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
        if isinstance(message, Exited | NotStarted | Stuck) and message.task in self.tasks:
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


@dataclass
class Restarter:
    """Restarts the tasks that have failed, if the policy and their roles allow it while others continue."""

    tasks: TaskGroup
    log: AttemptLog
    starts: PendingStarts

    def restart(self, failed_at: float, now: float) -> tuple[str, ...]:
        """Returns the tasks that are restarted; none if the whole job must be stopped.

        Args:
            failed_at: when the failure was noticed, in seconds since 1970.
            now: monotonic.
        """
        job, policy = self.tasks.job, self.tasks.policy
        if self.tasks.stopped or not policy.max_restarts or self._host_lost():
            return ()
        outcome = diagnose(self.tasks.history, job)
        attempts = self.log.closed(failed_at, outcome.reason, outcome.culprit, outcome.exit_code)
        decision = decide(outcome, job, policy, attempts, self._failed())
        if not isinstance(decision, Restart) or decision.whole:
            return ()
        self.log.attempts = attempts
        number = self.log.open(decision.tasks, event_time())
        reason = announcement(outcome, decision, job, policy, number, self.log.saved_step)
        self.tasks.announce(Restarting(number, decision.tasks, False, reason, decision.delay_s, event_time()))
        self.tasks.renew(decision.tasks, number)
        self.tasks.stop(self.tasks.running & set(decision.tasks), policy.failure_grace_s)
        self.starts.add(decision.tasks, now + decision.delay_s)
        return decision.tasks

    def _host_lost(self) -> bool:
        """Whether a host of the job is lost: its tasks cannot be started again there."""
        return any(self.tasks.of_host(lost.host) for lost in self.tasks.history.select(AgentLost))

    def _failed(self) -> set[str]:
        exits = self.tasks.history.select(Exited)
        ended = {exit.task for exit in exits if exit.code != 0 or exit.task in self.tasks.job.serving}
        return ended | {failed.task for failed in self.tasks.history.select(ReportedError)}
