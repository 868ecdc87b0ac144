"""Supervise a job's tasks until all have ended and none is started again: one queue of messages, one loop."""

import math
import signal
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from queue import Empty
from typing import Any

from tfdist.launch.agent_program.system import event_time
from tfdist.launch.agents import messages
from tfdist.launch.agents.channel import SilenceDetector
from tfdist.launch.agents.inbox import (
    AgentLost,
    Arrival,
    Inbox,
    Interrupted,
    Message,
    NextTurn,
    OnMessage,
    StacksWanted,
    readable,
)
from tfdist.launch.diagnosis.diagnose import diagnose, first_failure, shows_cause
from tfdist.launch.diagnosis.evidence import killed_from_outside
from tfdist.launch.diagnosis.history import (
    Entry,
    History,
    NotFinite,
    Outcome,
    ReportedError,
    StartTimedOut,
    TimedOut,
)
from tfdist.launch.errors import SIGNALS, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.attempts import AttemptLog
from tfdist.launch.supervision.restarts import SavedState, not_restarted
from tfdist.launch.supervision.saving import Saving, with_earlier_checkpoint
from tfdist.launch.supervision.straggler_watch import StragglerWatch
from tfdist.launch.supervision.task_group import Deadlines, PendingStarts, TaskGroup
from tfdist.launch.supervision.watches import LISTEN_S, Barrier, FrozenWatch, JoinWatch, StallWatch
from tfdist.launch.text import shortened, signal_name

FOLLOW_S = 300.0
"""Time for the tasks that follow the leading ones to end after them."""


NextTasks = Callable[[TaskGroup, SavedState], tuple[TaskGroup, str]]
"""The tasks of the next attempt and what is different, given those that have ended and the checkpoint to continue from.

Raises a TfdistError if the job cannot be continued or, with the exit code 128 + signal, was interrupted.
"""


class Supervisor:
    """The state of a run. Messages and deadlines decide what happens; private methods do it.

    A run is a sequence of attempts. A restart of some tasks renews what is known about them; a restart of all tasks
    renews all but the log of the attempts and the time limit. `restart` does both.
    """

    def __init__(
        self, tasks: TaskGroup, inbox: Inbox, log: AttemptLog, next_tasks: NextTasks, paced: bool = False
    ) -> None:
        """Prepare; `start` starts the tasks.

        Args:
            tasks: of the job.
            inbox: gets the messages of their agents, and signals.
            log: the attempts so far.
            next_tasks: called before all tasks are restarted.
            paced: the barrier opens only for a `NextTurn`, and the time limit is that of each turn. Nothing is
                restarted.
        """
        self.inbox = inbox
        self.log = log
        self.paced = paced
        self.policy = tasks.policy
        self.timeout_at: float | None = None
        """Monotonic time limit of the run."""
        self._next_tasks = next_tasks
        self.stragglers = StragglerWatch(tasks)
        self._take(tasks)

    def _take(self, tasks: TaskGroup) -> None:
        """Supervise these tasks, knowing nothing about those before."""
        self.tasks = tasks
        self.records: dict[str, Mapping[str, Any]] = {}
        self.failed_at: float | None = None
        """Monotonic time of the first failure since the start, or since the last restart."""
        self.restarted_at = -math.inf
        """Monotonic time of the last restart of some tasks."""
        self.loss_reported = False
        """A loss was not finite since the start, or since the last restart."""
        self.barrier = Barrier(tasks, self.paced, partial(self._stop, self.policy.grace_s))
        self.starts = PendingStarts(tasks, self._start_timed_out)
        self.saving = Saving(tasks)
        self.silence = SilenceDetector(self.policy.silence_s)
        self.joining = JoinWatch(tasks, self.fail)
        self.stalls = StallWatch(tasks, self.fail, any(attempt.last_step is not None for attempt in self.log.attempts))
        earlier, self.stragglers = self.stragglers, StragglerWatch(tasks)
        self.stragglers.follow(earlier)
        self.deadlines[self._check_silence] = -math.inf

    def start(self, now: float) -> None:
        """Start all tasks, as the first attempt. The time limit counts from `now` (monotonic)."""
        if self.policy.timeout_s is not None:
            self.timeout_at = now + self.policy.timeout_s
        self.tasks.renew(self.tasks.channels, self.log.open(self.tasks.channels, event_time()))
        self._watch(now)
        self.starts.add(self.tasks.channels, now)

    def _watch(self, now: float) -> None:
        """Let the watches and the time limit begin."""
        if self.timeout_at is not None:
            self.deadlines[self._time_out] = self.timeout_at
        if not self.paced:
            FrozenWatch(self.tasks, self.fail).start(now)
            self.stalls.start(now)
            self.stragglers.start(now)
        if self.policy.inspect_s is not None:
            self.deadlines[self._inspect] = now

    @property
    def job(self) -> Job:
        """The job of the present attempt."""
        return self.tasks.job

    @property
    def history(self) -> History:
        """What has happened to its tasks."""
        return self.tasks.history

    @property
    def deadlines(self) -> Deadlines:
        """What is due later."""
        return self.tasks.deadlines

    @property
    def active(self) -> bool:
        """Whether a task runs or will be started."""
        return self.tasks.any_running or bool(self.starts.waiting)

    def accepts(self, arrival: Arrival) -> bool:
        """Whether a message may be handled and written down.

        One about a task must come from its host, which must not affect others, and be about a known attempt; a reply
        must answer a request.
        """
        message = arrival.message
        if isinstance(message, messages.Reply):
            return self.tasks.requests.expects(arrival.host, message)
        if not isinstance(message, messages.TaskMessage):
            # its agent has sent these already
            return not isinstance(message, messages.LoggedIn | messages.Alive | messages.Hello)
        channel = self.tasks.channels.get(message.task)
        known = 0 <= message.attempt <= self.tasks.attempt(message.task)
        return channel is not None and channel.host == arrival.host and known

    def handle(self, message: Message, at: float | None = None) -> None:
        """Decide what a message changes.

        Args:
            message: of a host that `accepts` it.
            at: monotonic time of its arrival; None: now.
        """
        at = time.monotonic() if at is None else at
        if isinstance(message, messages.TaskMessage) and message.attempt != self.tasks.attempt(message.task):
            self.starts.note_end(message)
            return
        self.history.add(message, event_time() - (time.monotonic() - at))
        self.stalls.note(message, at)
        self.stragglers.note(message, at)
        if isinstance(message, messages.Event):
            self.log.update(message)
        match message:
            case messages.Started(task):
                self.tasks.note_start(task)
                if self.tasks.all_started:
                    self.deadlines.cancel(self._start_timed_out)
                    self.deadlines[self.joining.check_config] = at + LISTEN_S
            case messages.Event(task, event={"event": "record", "record": Mapping() as record}):
                self.records[task] = record
            case messages.Event(task, event={"event": "step", "step": int() as step, "loss": float() as loss}):
                if not (math.isfinite(loss) or self.loss_reported or self.paced):
                    self._report_loss(NotFinite(task, step, loss), at)
            case messages.Event(task, event={"event": "barrier"}):
                self.barrier.waiting.add(task)
                if self.barrier.check():  # the turn has ended
                    self.deadlines.cancel(self._time_out)
            case messages.Event(event={"event": "failed"}):
                self._after_failure(at, self.policy.failure_settle_s)
            case messages.Exited(task, code):
                self.tasks.note_end(task, code)
                self._after_exit(task, code, at)
            case messages.Stuck(task):
                self.tasks.note_end(task)
            case messages.NotStarted(task):
                self.tasks.note_end(task)
                if not self.tasks.stopped:  # once: a program that is missing is missing for all
                    self._stop(self.policy.grace_s, f"{task} could not be started")
            case NextTurn(turn):
                if self.policy.timeout_s is not None:
                    self.deadlines[self._time_out] = at + self.policy.timeout_s
                self.barrier.start_turn(turn)
            case StacksWanted():
                self.tasks.dump_stacks(lambda _: None, full=True)
            case Interrupted():
                self._interrupt(message, at)
            case messages.Terminated() if self.policy.kill_wait_s and not self.history.select(Interrupted):
                self.handle(Interrupted(signal.SIGTERM, of_agent=True), at)
            case AgentLost(host):
                self._abandon(host, at)

    def fail(self, entry: Entry, now: float) -> None:
        """Handle a failure that a watch has found: add it to the history, and restart or stop tasks at once."""
        if not self.tasks.stopped:
            self.history.entries.append(entry)
            self.failed_at = now if self.failed_at is None else self.failed_at
            self.deadlines.run(self.settle, now)

    def _inspect(self, now: float) -> float:
        self.tasks.inspect()
        return now + (self.policy.inspect_s or math.inf)

    def _report_loss(self, loss: NotFinite, now: float) -> None:
        self.loss_reported = True
        if self.policy.stop_on_nan:
            self.fail(loss, now)
            return
        what = f"loss of {loss.task} is {loss.loss} at step {loss.step}"
        self.tasks.note(f"{what}; the training continues (--set stop_on_nan=true stops it)")

    def _after_exit(self, task: str, code: int, at: float) -> None:
        if self.saving.active:
            self.saving.note_exit(code, at)
            return
        early = task in self.job.serving and not self.tasks.succeeded
        if code != 0 or early:
            self._after_failed_exit(task, code, at)
        elif not self.tasks.succeeded:
            self.barrier.check()  # the others need not wait for this one
            self.joining.note_exit(task, at)
        elif not self.tasks.stopped:
            self._after_success(at)

    def _after_failed_exit(self, task: str, code: int, at: float) -> None:
        killed = killed_from_outside(code)
        self._after_failure(at, self.policy.settle_killed_s if killed else self.policy.failure_settle_s)
        role = self.job.roles[task.rpartition("-")[0]]
        alone = role.restarts == () and not role.leads and code != 0 and not self.tasks.stopped
        if alone and diagnose(self.history, self.job).culprits == (task,):  # no other failure can be the cause
            self._restart_some(at)

    def _after_success(self, at: float) -> None:
        following = set(self.job.following) & self.tasks.running
        self._stop(self.policy.grace_s, spared=following)
        if following:
            self.deadlines[self._stop_following] = at + FOLLOW_S

    def _stop_following(self, _: float) -> None:
        self._stop(self.policy.grace_s, f"waited {FOLLOW_S:g} s for {shortened(sorted(self.tasks.running))}")

    def _after_failure(self, at: float, settle_s: float) -> None:
        if self.tasks.stopped:
            return
        if self.failed_at is None:
            self.failed_at = at
            self.tasks.inspect()
        self.deadlines[self.settle] = min(at + settle_s, self.deadlines.get(self.settle, math.inf))

    def settle(self, now: float) -> float | None:
        """Restart or stop tasks, but not as long as every failure may be the consequence of one not seen yet.

        A task that reported its exception gets more time: it may save its logs before it exits.

        Returns:
            when to look again; None: not before the next failure.
        """
        # the failure of a task that was restarted just now may be the cause
        recent = self.restarted_at + self.policy.settle_secondary_s >= now
        until = (self.failed_at or now) + (self.policy.settle_s if recent else self.policy.settle_secondary_s)
        if now < until and not shows_cause(self.history, self.job):
            self.tasks.inspect()
            return min(until, now + 1.0)
        if self._restart_some(now):
            return None
        ending = {entry.task for entry in self.history.select(ReportedError)} & self.tasks.running
        if now >= until and self.tasks.stopped:
            self._stop(self.policy.failure_grace_s, first_failure(self.history), self.tasks.running - ending)
            return None
        spared = ending if now < until and not self.policy.max_restarts else ()
        self._stop(self.policy.failure_grace_s, first_failure(self.history), spared)
        return until if spared else None

    # --- restarts

    def _restart_some(self, now: float) -> bool:
        """Restart the tasks that have failed, if the policy and their roles allow it while others continue.

        Returns:
            whether it did; else the whole job must be stopped.
        """
        # the tasks of a lost host cannot be started again there
        lost = any(self.tasks.of_host(agent.host) for agent in self.history.select(AgentLost))
        return self.active and not self.tasks.stopped and not lost and self.restart(now) is None

    def restart(self, now: float) -> Outcome | None:
        """Diagnose the present attempt, decide about a restart, announce it, and plan the start of its tasks.

        As long as tasks run, some can be restarted, without the others; once none runs, all are, maybe as another job.

        Returns:
            None after a restart; else how the attempt has ended, or will once its other tasks are stopped.
        """
        whole = not self.active
        outcome, restart = self.log.judge(self.tasks, self.failure_time(now), whole)
        if restart is None or (restart.whole and not whole):
            return outcome
        tasks, note = self.tasks, ""
        if whole:
            try:
                tasks, note = self._tasks_after()
            except TfdistError as error:
                return not_restarted(outcome, error)
            now = time.monotonic()  # hosts may have been waited for
            restart = replace(restart, tasks=tuple(tasks.channels), whole=True)
        restarting = self.log.follow(outcome, restart, tasks.job, self.policy, note)
        tasks.announce(restarting)
        tasks.renew(restart.tasks, restarting.attempt)
        if whole:
            self._take(tasks)
            self._watch(now)
        else:
            self._forget(restart.tasks, now)
        self.starts.add(restart.tasks, now + restart.delay_s)
        return None

    def _tasks_after(self) -> tuple[TaskGroup, str]:
        """All tasks of the next attempt, and what is different.

        Raises:
            TfdistError: the job was interrupted after the failure, or cannot be continued.
        """
        for interrupted in self.history.select(Interrupted):
            raise TfdistError("interrupted", SIGNALS + interrupted.signal)
        return self._next_tasks(self.tasks, self.log.saved)

    def _forget(self, tasks: Collection[str], now: float) -> None:
        """Stop what still runs of tasks that are restarted, and forget what is known about them."""
        self.tasks.stop(self.tasks.running & set(tasks), self.policy.failure_grace_s)
        for task in tasks:
            self.records.pop(task, None)
        self.barrier.waiting -= set(tasks)
        self.stalls.restart(now)
        self.failed_at, self.restarted_at, self.loss_reported = None, now, False
        self.deadlines.cancel(self.settle, self._start_timed_out)

    def completed(self, outcome: Outcome) -> Outcome:
        """The outcome of the run, from that of its last attempt."""
        outcome = replace(outcome, records=self.records, stragglers=tuple(self.stragglers.reports))
        received = self.history.select(Interrupted)
        return with_earlier_checkpoint(outcome, self.policy, self.log.saved.step, received)

    # --- stops

    def failure_time(self, now: float) -> float:
        """When the present failure was noticed, in seconds since 1970; `now` is the monotonic time."""
        return event_time() - (now - (self.failed_at or now))

    def _time_out(self, _: float) -> None:
        timeout_s = self.policy.timeout_s or 0.0
        self.history.entries.append(TimedOut(timeout_s))
        self._stop(self.policy.grace_s, f"--timeout {timeout_s:g} s")

    def _start_timed_out(self, _: float) -> None:
        missing = tuple(sorted(self.tasks.starting))
        if not missing:  # the others wait for their start
            return
        self.history.entries.append(StartTimedOut(self.policy.start_timeout_s, missing))
        self.tasks.lose(missing)
        self._stop(self.policy.grace_s, f"{shortened(missing)} not started in time")

    def _check_silence(self, now: float) -> float:
        channels = set(self.tasks.channels.values())
        for _, lost in self.silence.newly_silent(channels, now):
            self.handle(lost)
            self.tasks.announce(lost)
        at_most_s = min(self.policy.heartbeat_s, self.policy.silence_s / 4)
        return min([now + at_most_s, *map(self.silence.deadline, channels)])

    def _stop(self, grace_s: float, reason: str = "", spared: Collection[str] = ()) -> None:
        """Stop all running tasks but the spared ones, and start no more."""
        self._start_no_more()
        if self.history.select(AgentLost):
            grace_s = min(grace_s, self.policy.lost_grace_s)
        tasks = self.tasks.running - set(spared)
        self.tasks.note_stop(tasks, grace_s, reason)
        self.tasks.stop(tasks, grace_s)

    def _start_no_more(self) -> None:
        self.starts.cancel()
        self.deadlines.cancel(self.settle, self._start_timed_out)

    def _interrupt(self, message: Interrupted, at: float) -> None:
        received = self.history.select(Interrupted)
        if len(received) == 2 and received[0].of_agent and received[0].signal == message.signal:
            return  # the scheduler's signal has reached us, too
        first = len(received) == 1
        reason = message.by or ("Ctrl-C" if message.signal == signal.SIGINT else signal_name(message.signal))
        if first and self.saving.wanted(message):
            self._start_no_more()
            self.saving.start(message.signal, reason, at)
        else:
            self.saving.active = False
            self._stop(self.policy.stop_grace_s(message.signal) if first else 0.0, reason)

    def _abandon(self, host: str, at: float) -> None:
        # Its tasks end without us: an agent stops them, and the parent of an agent kills what a killed one leaves.
        running = set(filter(self.tasks.has_process, self.tasks.of_host(host)))
        lost = running | (self.tasks.of_host(host) & self.starts.tasks)
        self.tasks.lose(running)
        if self.saving.active and not lost.isdisjoint(self.job.leading):  # the others would wait for it
            self.saving.end(at)
        if lost and not self.tasks.stopped:  # other hosts may be lost at the same time
            self.starts.cancel()
            self.failed_at = self.failed_at or at
            self.deadlines[self.settle] = at + min(self.policy.settle_s, self.policy.lost_grace_s)


def supervise(supervisor: Supervisor, writer: RunWriter, on_message: OnMessage) -> Outcome:
    """Run the loop until no task runs and none is started again."""
    heartbeat_s = supervisor.policy.heartbeat_s
    refused: set[tuple[Host | None, type]] = set()
    while True:
        now = time.monotonic()
        supervisor.deadlines.run_due(now)
        if not supervisor.active:
            outcome = supervisor.restart(now)
            if outcome is not None:
                return supervisor.completed(outcome)
            refused.clear()
            continue
        try:
            arrival = supervisor.inbox.get(min(supervisor.deadlines.next() - now, heartbeat_s))
        except Empty:
            on_message(messages.Heartbeat(event_time()))  # a display counts its seconds on
            continue
        if not supervisor.accepts(arrival):
            if (arrival.host, type(arrival.message)) not in refused:  # or a host could fill the disk
                refused.add((arrival.host, type(arrival.message)))
                writer.refuse(arrival)
            continue
        # `decode` has made those of agents readable
        message = arrival.message if arrival.host is not None else readable(arrival.message)
        message = supervisor.tasks.requests.take(arrival.host, message)
        writer.write(message)
        supervisor.handle(message, arrival.at)
        on_message(message)
