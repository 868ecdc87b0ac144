"""Whether tasks are restarted after a failure, which ones, and when. Pure: tests replay attempts."""

import re
import signal
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from tfdist.launch.agents.inbox import Interrupted, Message
from tfdist.launch.agents.messages import Event, Exited, NotStarted, Stuck
from tfdist.launch.diagnosis.history import Attempt, Outcome, Status
from tfdist.launch.errors import ExitCode
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy, RestartOn
from tfdist.launch.supervision.task_group import Action, TaskGroup
from tfdist.launch.text import shortened, signal_name

SCHEDULER_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""What a scheduler sends some time before it ends a job."""


@dataclass
class Saving:
    """Sends SIGTERM to one leading task, as TensorFlow's PreemptionCheckpointHandler needs it: that task tells the
    others at which step all save. They exit then, and the rest of the job is stopped.
    """

    tasks: TaskGroup
    active: bool = False

    def wanted(self, interrupted: Interrupted) -> bool:
        """Whether the job saves a checkpoint on this signal, and has a task that can."""
        saves = self.tasks.policy.saves_on_signal and interrupted.signal in SCHEDULER_SIGNALS
        return saves and not self.tasks.stopped and not self.tasks.started.isdisjoint(self.tasks.leaders[:1])

    def start(self, number: int, reason: str, now: float) -> None:
        """Make the tasks save after the signal `number`. All count as stopped now: how they exit is not a failure."""
        grace_s = self.tasks.policy.save_grace_s(number)
        self.active = self.tasks.stopped = True
        self.tasks.note_stop(self.tasks.running, grace_s, f"{reason}, saving a checkpoint")
        self.tasks.stop(self.tasks.leaders[:1], grace_s, keeps_barrier=True)
        self.tasks.deadlines[self.end] = now + grace_s

    def note_exit(self, code: int, now: float) -> None:
        """Stop the rest if the last leading task has exited, or if one has exited without saving."""
        if not self.tasks.leaders or code not in (ExitCode.SUCCESS, ExitCode.PREEMPTED):
            self.end(now)

    def end(self, _: float) -> None:
        """Stop the tasks that still run."""
        self.active = False
        self.tasks.deadlines.cancel(self.end)
        self.tasks.stop(self.tasks.running, min(self.tasks.policy.grace_s, self.tasks.policy.lost_grace_s))


def with_earlier_checkpoint(
    outcome: Outcome, policy: Policy, saved_step: int, received: Sequence[Interrupted]
) -> Outcome:
    """The outcome, with exit code 42 if a signal came when no task could save, but a checkpoint exists. Pure.

    Args:
        outcome: of the last attempt.
        policy: of the run.
        saved_step: of the last checkpoint that a task saved or continued from; 0 without one.
        received: the signals during the last attempt; after a second one the exit code stays.
    """
    saves = outcome.status is Status.INTERRUPTED and policy.saves_on_signal and outcome.signal in SCHEDULER_SIGNALS
    # a scheduler's signal may come from an agent first, and then to the launcher
    by_agent = len(received) == 2 and received[0].of_agent
    repeated = received[0].signal != received[1].signal if by_agent else len(received) > 1
    if not saves or not saved_step or outcome.exit_code == ExitCode.PREEMPTED or repeated:
        return outcome
    reason = outcome.reason
    if outcome.not_restarted:  # it is that of the failure before
        reason = f"{reason}; interrupted by {signal_name(outcome.signal)}"
    return replace(outcome, exit_code=ExitCode.PREEMPTED, reason=f"{reason}: step {saved_step} was saved before")


@dataclass(frozen=True)
class SavedState:
    """What the last checkpoint has; zeros without one."""

    step: int = 0
    examples: int = 0


@dataclass
class AttemptLog:
    """Keeps the attempts of a run, from its messages. The last attempt is the one that runs."""

    attempts: list[Attempt] = field(default_factory=list)
    saved: SavedState = field(default_factory=SavedState)
    """The newest checkpoint that a task has reported."""

    def open(self, tasks: Iterable[str], time: float, note: str = "") -> int:
        """Add an attempt that starts these tasks; returns its number."""
        self.attempts.append(Attempt(len(self.attempts), tuple(tasks), time, note=note))
        return self.attempts[-1].number

    def update(self, message: Event) -> None:
        """Note a step, or the checkpoint that was saved or restored."""
        last = self.attempts[-1]
        step = message.event.get("step")
        if not isinstance(step, int):
            return
        match message.event.get("event"):
            case "step":
                first = message.time if last.first_step is None and message.task in last.tasks else last.first_step
                self.attempts[-1] = replace(last, first_step=first, last_step=max(step, last.last_step or 0))
            case "checkpoint" | "resumed" as event:
                examples = message.event.get("examples")
                self.saved = SavedState(step, examples if isinstance(examples, int) else 0)
                if event == "resumed":
                    self.attempts[-1] = replace(last, resumed_from=step)

    def closed(self, time: float, reason: str, culprit: str | None, exit_code: int) -> list[Attempt]:
        """The attempts, if the last one has ended at that time (in seconds since 1970), for that reason."""
        last = replace(self.attempts[-1], ended=time, reason=reason, culprit=culprit, exit_code=int(exit_code))
        return [*self.attempts[:-1], last]


MOST_ALIKE = 3
"""Failures of one task at the same step before it is not restarted any more."""
ALIKE_S = 60.0
"""The same for a task that emits no steps: failures within this time."""
MOST_DELAY_S = 60.0
OUT_OF_MEMORY = re.compile(r"out of memory|MemoryError|ResourceExhaustedError|OOM when allocating", re.IGNORECASE)


@dataclass(frozen=True)
class Restart:
    """Start tasks again."""

    tasks: tuple[str, ...]
    """Tasks in the order of the job."""
    whole: bool
    """No other task continues."""
    delay_s: float


def decide(
    outcome: Outcome, job: Job, policy: Policy, attempts: Sequence[Attempt], failed: Collection[str] = ()
) -> Restart | str:
    """The restart after a failure, or why there is none: empty if the policy asks for none.

    Args:
        outcome: of the attempt that has failed.
        job: of the attempt.
        policy: of the run.
        attempts: all so far; the last one has failed.
        failed: tasks that have failed while others still run, as the consequence of the culprits' failure or not.
    """
    ignored = RestartOn.FAILURE if outcome.exit_code == ExitCode.PREEMPTED else RestartOn.PREEMPTION
    if not policy.max_restarts or outcome.status is not Status.FAILED or policy.restart_on is ignored:
        return ""
    if outcome.not_restarted:
        return outcome.not_restarted
    if outcome.exit_code == ExitCode.NOT_STARTED:
        return "its program could not be started"
    if outcome.exit_code == ExitCode.USAGE:
        return "the input is wrong, which a restart does not change"
    if outcome.exit_code == ExitCode.START_TIMEOUT and not outcome.culprits:
        return "its tasks could not be started in time"
    if outcome.warnings:
        return "a process could not be killed"
    steps_known = job.reports_steps or any(attempt.first_step is not None for attempt in attempts)
    since = attempts if outcome.culprit in job.serving else attempts[-1:]  # their chief takes the steps
    if steps_known and all(each.last_step is None for each in since) and OUT_OF_MEMORY.search(outcome.reason):
        return "it was out of memory before its first step"
    if alike := alike_failures(job, attempts):
        return alike
    if len(attempts) > policy.max_restarts:
        return f"--max-restarts {policy.max_restarts} is used up"
    tasks = tasks_to_restart(job, (*outcome.culprits, *failed) if outcome.culprits else ())
    if tasks is None:
        return "a job of this strategy cannot be restarted"
    whole = set(tasks) == {plan.task.name for plan in job.plans}
    return Restart(tasks, whole, delay_s(attempts))


def tasks_to_restart(job: Job, culprits: Sequence[str]) -> tuple[str, ...] | None:
    """The tasks that are restarted after a failure of these; all of them if a host is to blame. None: no restart."""
    roles = {plan.task.name: plan.task.role for plan in job.plans}
    failed = {roles[task] for task in culprits} or set(roles.values())
    if any(job.roles[role].restarts is None for role in failed):
        return None
    if not culprits:
        return tuple(roles)
    together = {role for task in culprits for role in job.roles[roles[task]].restarts or ()}
    tasks = [task for task in roles if task in culprits or roles[task] in together]
    lasting = roles.keys() - set(tasks) - set(job.following)
    return tuple(tasks if lasting else roles)


def delay_s(attempts: Sequence[Attempt]) -> float:
    """Seconds before the next attempt: 0 after an attempt that got further than the one before, else 1, 2, 4, ..."""
    stuck, before, furthest = 0, False, 0
    for attempt in attempts:
        if attempt.ended is None:
            continue
        if attempt.last_step is None:  # without steps, it got further if it lasted for a while
            further = attempt.ended - attempt.started >= ALIKE_S
        else:
            further = attempt.last_step > furthest
        stuck = stuck + 1 if before and not further else 0
        before = True
        furthest = max(furthest, attempt.last_step or 0)
    return min(MOST_DELAY_S, 2.0 ** min(stuck - 1, 10)) if stuck else 0.0


def alike_failures(job: Job, attempts: Sequence[Attempt]) -> str:
    """Why a further attempt would fail as the last ones did; empty if that is not known."""
    last = attempts[-1]
    alike = list(takewhile(lambda each: _culprit(each) == _culprit(last), reversed(attempts)))
    steps_known = last.culprit not in job.serving and (
        job.reports_steps or any(each.last_step is not None for each in attempts)
    )
    who = last.culprit or "it"
    if steps_known:
        same = list(takewhile(lambda each: each.last_step == last.last_step, alike))
        at = "before the first step" if last.last_step is None else f"at step {last.last_step}"
        return f"{who} failed {len(same)} times {at}" if len(same) >= MOST_ALIKE else ""
    ends = [each.ended or 0.0 for each in alike]
    recent = len(ends) >= MOST_ALIKE and ends[0] - ends[MOST_ALIKE - 1] <= ALIKE_S
    return f"{who} failed {MOST_ALIKE} times within {ALIKE_S:g} s" if recent else ""


def _culprit(attempt: Attempt) -> str:
    return attempt.culprit or attempt.reason


def announcement(outcome: Outcome, restart: Restart, job: Job, policy: Policy, number: int, saved_step: int) -> str:
    """`worker-1 was killed by SIGKILL (not by tfdist); restart 1 of 3: all tasks, from step 120`."""
    what = "all tasks" if restart.whole and len(restart.tasks) > 1 else shortened(restart.tasks)
    if set(restart.tasks).isdisjoint(job.leading):
        start = ""
    elif saved_step:
        start = f", from step {saved_step}"
    else:
        start = ", from the start: no checkpoint" if job.reports_steps else ""
    wait = f", in {restart.delay_s:g} s" if restart.delay_s else ""
    return f"{outcome.reason}; restart {number} of {policy.max_restarts}: {what}{start}{wait}"


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
    timed_out: Action
    """Called if tasks are not started in time."""
    waiting: list[PendingStart] = field(default_factory=list)
    ending: set[str] = field(default_factory=set)
    """Tasks whose earlier attempt still runs."""

    @property
    def tasks(self) -> set[str]:
        """The tasks that will be started."""
        return {task for start in self.waiting for task in start.tasks}

    def add(self, tasks: Collection[str], at: float) -> None:
        """Start these tasks at that monotonic time, or later if they still run then."""
        for start in self.waiting:
            start.tasks -= set(tasks)
        self.waiting.append(PendingStart(set(tasks), at))
        self.ending |= set(tasks) & self.group.running
        self._set_deadline()

    def cancel(self) -> None:
        """Start nothing any more."""
        self.waiting.clear()
        self.group.deadlines.cancel(self.start_due)

    def note_end(self, message: Message) -> None:
        """Take a message about an earlier attempt of a task: if its process has ended, the next one may start."""
        if isinstance(message, Exited | NotStarted | Stuck) and message.task in self.ending:
            self.ending.discard(message.task)
            self.group.running.discard(message.task)
            self._set_deadline()

    def start_due(self, now: float) -> None:
        """Start the tasks whose time has come."""
        for start in [start for start in self._unblocked() if start.at <= now]:
            self.waiting.remove(start)
            self.group.start(start.tasks)
            self.group.deadlines[self.timed_out] = now + self.group.policy.start_timeout_s
        self._set_deadline()

    def _unblocked(self) -> list[PendingStart]:
        return [start for start in self.waiting if not start.tasks & self.group.running]

    def _set_deadline(self) -> None:
        times = [start.at for start in self._unblocked()]
        if times:
            self.group.deadlines[self.start_due] = min(times)
