"""Plans the attempts of a run: on which hosts, and that these can run the job."""

import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tfdist.launch.agent_program.system import event_time
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.inbox import AgentLost, HostReady, Note, readable
from tfdist.launch.agents.messages import Heartbeat
from tfdist.launch.doctor.preflight import preflight
from tfdist.launch.errors import SIGNALS, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy
from tfdist.launch.program_copy import decimal
from tfdist.launch.runs.writer import RunWriter, save_plan
from tfdist.launch.supervision.listeners import Listeners
from tfdist.launch.supervision.rejoin import HostChoice, NextPlan, Rejoin
from tfdist.launch.supervision.restarts import SavedState
from tfdist.launch.supervision.task_group import TaskGroup
from tfdist.launch.text import shortened

PATIENCE_S, UPDATE_S = 2.0, 5.0
"""Seconds before a line says that a copy travels, and between two of them."""


@dataclass
class AttemptPlanner:
    """Plans the first attempt, and the next one on the hosts that answer. The first arguments are those of `launch`."""

    fleet: Fleet
    writer: RunWriter
    policy: Policy
    listeners: Listeners
    needs_tensorflow: bool
    hosts: HostChoice
    rejoin: Rejoin
    _new: list[Host] = field(default_factory=list)
    """Hosts that were connected since the last plan."""
    _changed: bool = False
    """Hosts were lost or connected since the last plan."""

    def first_tasks(self, job: Job) -> TaskGroup:
        """The tasks of the first attempt.

        Raises:
            TfdistError: the preflight failed.
        """
        return self._tasks(self._prepare(job))

    def next_tasks(self, ended: TaskGroup, saved: SavedState) -> tuple[TaskGroup, str]:
        """The tasks of the next attempt, and what is different: `NextTasks` of the supervisor.

        Raises:
            TfdistError: the job cannot be continued, or interrupted (exit code 128 + signal).
        """
        lost = {agent.host: agent.reason for agent in ended.history.select(AgentLost)}
        for host in [host for host in self.fleet.channels if host.name in lost]:
            self.fleet.lose(host, lost[host.name])
        plan = self._next_plan(ended.job, saved)
        return self._tasks(plan.job), plan.note

    def _tasks(self, job: Job) -> TaskGroup:
        channels = {plan.task.name: self.fleet.channels[plan.host] for plan in job.plans}
        if self.policy.saves_on_signal and self.policy.kill_wait_s:
            for channel in channels.values():
                channel.shield(True)
        return TaskGroup(
            job, channels, self.policy, self.fleet.requests, self.listeners.announce, self.listeners.isolate
        )

    def _prepare(self, job: Job) -> Job:
        """Check the hosts, reserve ports and save the plan; returns the job with its ports.

        Raises:
            TfdistError: the preflight failed.
        """
        planned = {plan.task: plan.program.folder for plan in job.plans}
        job, notes = preflight(job.sharing(os.environ), self.fleet, self.needs_tensorflow, _Copying(self, job).show)
        for note in notes:
            self.listeners(readable(note))
        if not self.needs_tensorflow:
            files = self.writer.run_dir.files.absolute()
            variable = "TFDIST_ARM_DIR"
            plans = []
            for plan in job.plans:  # in the home folder of a host without ours, which must not be made there
                program = plan.program
                here = program.folder == planned[plan.task]
                env = {} if here else {variable: f"{program.folder}/runs/{self.writer.run_dir.path.name}/files"}
                plans.append(replace(plan, program=replace(program, env={**program.env, **env})))
            job = replace(job, plans=tuple(plans), shared={**job.shared, variable: str(files)})
        save_plan(job, {host.name: hello for host, hello in self.fleet.hellos.items()}, self.writer)
        return job

    def _next_plan(self, job: Job, saved: SavedState) -> NextPlan:
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
            plan = self._plan(job, saved, deadline)
            if plan.job is job and not self._changed:
                return plan
            try:
                return replace(plan, job=self._prepare(plan.job))
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

    def _plan(self, job: Job, saved: SavedState, deadline: float) -> NextPlan:
        waits = False
        try:
            while True:
                wanted = [host for host in self.rejoin.wanted if host in self.fleet.hellos]
                self.fleet.hellos = {host: self.fleet.hellos[host] for host in (*wanted, *self.fleet.hellos)}
                try:
                    return self.hosts.plan(job, {host: self.fleet.hellos[host] for host in wanted}, saved)
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


class _Copying:
    """Says which hosts wait for their copy, once that takes longer than expected."""

    def __init__(self, planner: AttemptPlanner, job: Job) -> None:
        self.say = planner.listeners.announce
        self.copy = job.copy
        self.next_at = time.monotonic() + PATIENCE_S

    def show(self, missing: Collection[Host]) -> None:
        """Announce it, every few seconds."""
        if self.copy is not None and time.monotonic() >= self.next_at:
            self.next_at = time.monotonic() + UPDATE_S
            size = decimal(len(self.copy.archive))
            self.say(Note("tfdist", f"copying {size} to {shortened(host.name for host in missing)}"))
