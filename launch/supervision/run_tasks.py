"""Run the tasks of a job on connected hosts, from preflight to outcome; the next attempt on those that answer."""

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from tfdist.launch.agent_program.system import event_time
from tfdist.launch.agents.channel import DESCRIPTORS
from tfdist.launch.agents.connect import SPARE_DESCRIPTORS, allow_descriptors, connect
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.inbox import AgentLost, HostReady, Interrupted, Note, OnMessage, Restarting, readable
from tfdist.launch.agents.messages import Finish, Heartbeat
from tfdist.launch.agents.template import Templates
from tfdist.launch.diagnosis.diagnose import diagnose
from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.doctor.preflight import preflight
from tfdist.launch.errors import SIGNALS, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy
from tfdist.launch.redact import safe_text
from tfdist.launch.runs.launcher import serve
from tfdist.launch.runs.writer import RunWriter, save_plan
from tfdist.launch.supervision.listeners import Listeners
from tfdist.launch.supervision.rejoin import HostChoice, NextPlan, Rejoin, SameHosts
from tfdist.launch.supervision.restarts import AttemptLog, Restart, announcement, decide, with_earlier_checkpoint
from tfdist.launch.supervision.supervise import Supervisor, supervise
from tfdist.launch.supervision.task_group import TaskGroup
from tfdist.launch.text import shortened

LOGS_PER_TASK = 3
"""Open files of a task: the logs of its stdout and stderr, and its stacks."""
NOBODY: Mapping[str, OnMessage] = {}


def launch(
    job: Job,
    writer: RunWriter,
    policy: Policy | None = None,
    listeners: Mapping[str, OnMessage] = NOBODY,
    *,
    fleet: Fleet | None = None,
    needs_tensorflow: bool = False,
    paced: bool = False,
    hosts: HostChoice | None = None,
) -> Outcome:
    """Run a job to its end. No process is left over, whatever happens.

    Args:
        job: from `plan_job`.
        writer: keeps logs, events and outcome in the run's folder.
        policy: timeouts.
        listeners: called with every message; the names are for the line about one that fails.
        fleet: the agents of the job's hosts, if they are connected already.
        needs_tensorflow: refuse hosts without TensorFlow.
        paced: open the barrier only for each `NextTurn` in the inbox of `fleet`; `policy.timeout_s` limits each turn.
        hosts: plans a restart of all tasks on the hosts that answer; None: the same job on the same hosts.

    Raises:
        TfdistError: an agent could not be started or the preflight failed; no task was started.
    """
    policy = policy or Policy()
    elastic = hosts is not None
    hosts = hosts or SameHosts(job.hosts)
    allow_descriptors(SPARE_DESCRIPTORS + DESCRIPTORS * len(job.hosts) + LOGS_PER_TASK * len(job.plans))
    with ExitStack() as stack:
        if fleet is None:
            template = stack.enter_context(closing(Templates())).of(job) if len(job.plans) > 1 else None
            fleet = stack.enter_context(connect(job.hosts, policy, template=template))
        rejoin = Rejoin(fleet, hosts.wanted)
        run = _Run(fleet, writer, policy, Listeners(listeners, writer.write), needs_tensorflow, paced, hosts, rejoin)
        job = run.prepare(job)
        started = time.monotonic()
        timeout_at = None if policy.timeout_s is None else started + policy.timeout_s
        with serve(writer.run_dir, fleet.inbox, run.running), closing(rejoin):
            if elastic:  # hosts that were lost, or are new, are connected while the job runs
                rejoin.start()
            outcome = run.to_the_end(job, timeout_at)
        for channel in fleet.channels.values():
            channel.shield(False)
            channel.send(Finish())
        outcome = replace(
            outcome,
            wall_s=time.monotonic() - started,
            hosts={host.name: hello for host, hello in fleet.hellos.items()},
            run_dir=str(writer.run_dir.path),
            warnings=(*outcome.warnings, *writer.warnings),
        )
        writer.save_outcome(outcome.to_json())  # signals would end the launcher later
        return outcome


@dataclass
class _Run:
    """The attempts of a run, one after the other. The first arguments are those of `launch`."""

    fleet: Fleet
    writer: RunWriter
    policy: Policy
    listeners: Listeners
    needs_tensorflow: bool
    paced: bool
    hosts: HostChoice
    rejoin: Rejoin
    log: AttemptLog = field(default_factory=AttemptLog)
    supervisor: Supervisor | None = None
    _new: list[Host] = field(default_factory=list)
    """Hosts that were connected since the last plan."""
    _changed: bool = False
    """Hosts were lost or connected since the last plan."""

    def running(self) -> list[str]:
        """The tasks that run."""
        return sorted(self.supervisor.tasks.running) if self.supervisor else []

    def prepare(self, job: Job) -> Job:
        """Check the hosts, reserve ports and save the plan; returns the job with its ports.

        Raises:
            TfdistError: the preflight failed.
        """
        planned = {plan.task: plan.program.cwd for plan in job.plans}
        job, notes = preflight(job.sharing(os.environ), self.fleet, self.needs_tensorflow)
        for note in notes:
            self.listeners(readable(note))
        if not self.needs_tensorflow:
            files = self.writer.run_dir.files.absolute()
            variable = "TFDIST_ARM_DIR"
            plans = []
            for plan in job.plans:  # in the home folder of a host without ours, which must not be made there
                program = plan.program
                here = plan.program.cwd == planned[plan.task]
                env = {} if here else {variable: f"{program.cwd}/runs/{self.writer.run_dir.path.name}/files"}
                plans.append(replace(plan, program=replace(program, env={**program.env, **env})))
            job = replace(job, plans=tuple(plans), shared={**job.shared, variable: str(files)})
        save_plan(job, {host.name: hello for host, hello in self.fleet.hellos.items()}, self.writer)
        return job

    def to_the_end(self, job: Job, timeout_at: float | None) -> Outcome:
        """Run the job, and restart it as often as the policy allows; `timeout_at` is monotonic."""
        outcome = self._attempt(job, timeout_at)
        while isinstance(restart := decide(outcome, job, self.policy, self.log.attempts), Restart):
            try:
                for interrupted in self._received():  # after the failure, while the tasks were stopped
                    raise TfdistError("interrupted", SIGNALS + interrupted.signal)
                plan = self._next_plan(job)
            except TfdistError as error:
                why = safe_text(str(error))
                code = error.exit_code
                if code > SIGNALS:
                    why = "interrupted before the restart"
                    outcome = replace(outcome, status=Status.INTERRUPTED, exit_code=code, signal=code - SIGNALS)
                outcome = replace(outcome, not_restarted=why)
                break
            job = plan.job
            self._announce_restart(outcome, restart, job, plan.note)
            outcome = self._attempt(job, timeout_at, restart.delay_s, plan.note)
        else:
            outcome = replace(outcome, not_restarted=restart)
        return with_earlier_checkpoint(outcome, self.policy, self.log.saved.step, self._received())

    def _received(self) -> list[Interrupted]:
        """The signals during the last attempt."""
        return self.supervisor.history.select(Interrupted) if self.supervisor else []

    def _announce_restart(self, outcome: Outcome, restart: Restart, job: Job, note: str) -> None:
        number = len(self.log.attempts)
        tasks = tuple(plan.task.name for plan in job.plans)
        restart = replace(restart, tasks=tasks, whole=True)
        reason = announcement(outcome, restart, job, self.policy, number, self.log.saved.step)
        lines = "; ".join(filter(None, (reason, note)))
        hosts = tuple(plan.host.name for plan in job.plans)
        self.listeners.announce(Restarting(number, tasks, True, lines, restart.delay_s, event_time(), hosts))

    def _attempt(self, job: Job, timeout_at: float | None, delay_s: float = 0.0, note: str = "") -> Outcome:
        """Start all tasks in `delay_s` seconds and supervise them to their end."""
        listeners = self.listeners
        channels = {plan.task.name: self.fleet.channels[plan.host] for plan in job.plans}
        if self.policy.saves_on_signal and self.policy.kill_wait_s:
            for channel in channels.values():
                channel.shield(True)
        tasks = TaskGroup(job, channels, self.policy, self.fleet.requests, listeners.announce, listeners.isolate)
        tasks.attempts = dict.fromkeys(channels, self.log.open(channels, event_time(), note))
        earlier = self.supervisor
        self.supervisor = Supervisor(tasks, self.fleet.inbox, self.log, self.paced)
        if earlier is not None:
            self.supervisor.stragglers.follow(earlier.stragglers)
        self.supervisor.start(time.monotonic(), delay_s, timeout_at)
        supervise(self.supervisor, self.writer, listeners)
        for lost in tasks.history.select(AgentLost):
            for host in [host for host in self.fleet.channels if host.name == lost.host]:
                self.fleet.lose(host, lost.reason)
        outcome = diagnose(tasks.history, job)
        reason = safe_text(outcome.reason)
        ended = self.supervisor.failure_time(time.monotonic())
        self.log.attempts = self.log.closed(ended, reason, outcome.culprit, outcome.exit_code)
        return replace(
            outcome,
            reason=reason,
            log=tuple(map(safe_text, outcome.log)),
            casualties={task: safe_text(ending) for task, ending in outcome.casualties.items()},
            warnings=tuple(map(safe_text, outcome.warnings)),
            records=self.supervisor.records,
            attempts=tuple(self.log.attempts),
            stragglers=tuple(self.supervisor.stragglers.reports),
        )

    # --- the hosts of the next attempt

    def _next_plan(self, job: Job) -> NextPlan:
        """The job of the next attempt. It is the same object, with the ports that it has, if no host has changed.

        If the hosts are too few, waits for at most `start_timeout_s` for more.

        Raises:
            TfdistError: the job cannot be continued, or interrupted (exit code 128 + signal).
        """
        self._new = []
        self._changed = False
        self._update_hosts()
        deadline = time.monotonic() + self.fleet.policy.start_timeout_s
        while True:
            plan = self._plan(job, deadline)
            if plan.job is job and not self._changed:
                return plan
            try:
                return replace(plan, job=self.prepare(plan.job))
            except TfdistError as error:
                self._leave_out(error)

    def _update_hosts(self) -> None:
        silent = [host for host, channel in self.fleet.channels.items() if channel.lost or channel.silent]
        lost = dict.fromkeys([*self.fleet.lost, *silent])
        for host in lost:
            self.rejoin.lose(host)
        new = self.rejoin.take()
        self._new = [host for host in (*self._new, *new) if host not in lost or host in new]
        self._changed = self._changed or bool(lost or new)

    def _plan(self, job: Job, deadline: float) -> NextPlan:
        waits = False
        try:
            while True:
                wanted = [host for host in self.rejoin.wanted if host in self.fleet.hellos]
                self.fleet.hellos = {host: self.fleet.hellos[host] for host in (*wanted, *self.fleet.hellos)}
                try:
                    return self.hosts.plan(job, {host: self.fleet.hellos[host] for host in wanted}, self.log.saved)
                except TfdistError as error:
                    if not waits:
                        seconds = max(0.0, deadline - time.monotonic())
                        missing = shortened(host.name for host in self.rejoin.wanted if host not in self.fleet.hellos)
                        self.listeners.announce(Note("tfdist", f"{error}; waiting {seconds:.0f} s for {missing}"))
                        self.rejoin.hurry(True)
                    waits = True
                    if not self._wait(deadline):
                        raise
        finally:
            if waits:
                self.rejoin.hurry(False)

    def _wait(self, deadline: float) -> bool:
        """Wait until a host is ready; returns whether one is."""
        while (now := time.monotonic()) < deadline:
            arrival = self.fleet.receive(min(deadline, now + self.policy.heartbeat_s))
            self.fleet.lose_silent()
            if arrival is None:
                self.listeners.announce(Heartbeat(event_time()))  # a display counts its seconds on
            elif isinstance(arrival.message, HostReady):
                self._update_hosts()
                return True
            elif isinstance(arrival.message, Note):  # why a host is not connected
                self.listeners.announce(arrival.message)
        return False

    def _leave_out(self, error: TfdistError) -> None:
        """Give up the hosts that the preflight has found to be lost or, if none is, those that are new.

        Raises:
            TfdistError: `error`, if it cannot be because of them.
        """
        hosts = list(self.fleet.lost) or self._new
        if not hosts or error.exit_code > SIGNALS:
            raise error
        self.listeners.announce(Note("tfdist", f"{error}; continuing without {shortened(host.name for host in hosts)}"))
        for host in hosts:
            self.rejoin.lose(host)
        self._new = [host for host in self._new if host not in hosts]
        self._changed = True
