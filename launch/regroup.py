"""The next attempt of a job on the hosts that answer."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.launcher_messages import HostReady, Note, OnMessage
from tfdist.launch.agents.messages import Heartbeat
from tfdist.launch.agents.program.clock import event_time
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job
from tfdist.launch.rejoin import Rejoin
from tfdist.launch.text import shortened

INTERRUPTED = 128
"""Exit codes above it are those of signals."""

Hellos = Mapping[Host, Mapping[str, Any]]


@dataclass(frozen=True)
class NextPlan:
    """A job for the next attempt."""

    job: Job
    note: str = ""
    """What is different from the attempt before, as in `3 workers instead of 4 (lost h2)`."""


class HostChoice(Protocol):
    """Decides which hosts a job may use, and plans it again on those that answer."""

    elastic: bool
    """The number of workers may change, so hosts that were lost, or are new, are connected while the job runs."""

    def wanted(self) -> Sequence[Host]:
        """The hosts that the job may use now. Called in a thread.

        Raises:
            TfdistError: the hosts have changed, but the change is wrong.
        """

    def plan(self, job: Job, hellos: Hellos, examples: int) -> NextPlan:
        """The job of the next attempt; the same object as `job` if nothing changes.

        Args:
            job: of the attempt that has ended.
            hellos: the hosts that answer.
            examples: trained until the last checkpoint.

        Raises:
            TfdistError: the hosts are too few.
        """


@dataclass(frozen=True)
class SameHosts:
    """All hosts of the job are needed."""

    hosts: tuple[Host, ...]
    elastic: bool = False

    def wanted(self) -> Sequence[Host]:
        """The hosts of the job."""
        return self.hosts

    def plan(self, job: Job, hellos: Hellos, examples: int) -> NextPlan:
        """The same job.

        Raises:
            TfdistError: a host is missing.
        """
        missing = [host.name for host in job.hosts if host not in hellos]
        if missing:
            fix = "with --min-workers a job continues without lost hosts"
            raise TfdistError(f"{shortened(missing)} did not answer again: {fix}")
        return NextPlan(job)


@dataclass
class Regroup:
    """Makes the plan of the next attempt: without hosts that were lost, and with those that are ready."""

    fleet: Fleet
    rejoin: Rejoin
    choice: HostChoice
    prepare: Callable[[Job], Job]
    """The preflight: returns the job with its ports, or raises a TfdistError."""
    on_message: OnMessage = lambda _: None
    _new: list[Host] = field(default_factory=list)
    """Connected since the last plan."""
    _changed: bool = False
    """Hosts were lost or connected since the last plan."""

    def next_plan(self, job: Job, examples: int) -> NextPlan:
        """The job of the next attempt. It is the same object, with the ports that it has, if no host has changed.

        If the hosts are too few, waits for at most `start_timeout_s` for more. Arguments as for `HostChoice.plan`.

        Raises:
            TfdistError: the job cannot be continued, or interrupted (exit code 128 + signal).
        """
        self._new, self._changed = [], False
        self._update()
        deadline = time.monotonic() + self.fleet.policy.start_timeout_s
        while True:
            plan = self._plan(job, examples, deadline)
            if plan.job is job and not self._changed:
                return plan
            try:
                return replace(plan, job=self.prepare(plan.job))
            except TfdistError as error:
                self._leave_out(error)

    def _update(self) -> None:
        silent = [host for host, channel in self.fleet.channels.items() if channel.lost or channel.silent]
        lost = dict.fromkeys([*self.fleet.lost, *silent])
        for host in lost:
            self.rejoin.lose(host)
        new = self.rejoin.take()
        self._new = [host for host in (*self._new, *new) if host not in lost or host in new]
        self._changed = self._changed or bool(lost or new)

    def _plan(self, job: Job, examples: int, deadline: float) -> NextPlan:
        waits = False
        try:
            while True:
                wanted = [host for host in self.rejoin.wanted if host in self.fleet.hellos]
                self.fleet.hellos = {host: self.fleet.hellos[host] for host in (*wanted, *self.fleet.hellos)}
                try:
                    return self.choice.plan(job, {host: self.fleet.hellos[host] for host in wanted}, examples)
                except TfdistError as error:
                    if not waits:
                        self._announce_wait(error, deadline)
                    waits = True
                    if not self._wait(deadline):
                        raise
        finally:
            if waits:
                self.rejoin.hurry(False)

    def _announce_wait(self, error: TfdistError, deadline: float) -> None:
        seconds = max(0.0, deadline - time.monotonic())
        missing = [host.name for host in self.rejoin.wanted if host not in self.fleet.hellos]
        self.on_message(Note("tfdist", f"{error}; waiting {seconds:.0f} s for {shortened(missing)}"))
        self.rejoin.hurry(True)

    def _wait(self, deadline: float) -> bool:
        """Wait until a host is ready; returns whether one is."""
        while (now := time.monotonic()) < deadline:
            arrival = self.fleet.receive(min(deadline, now + self.fleet.policy.heartbeat_s))
            self.fleet.lose_silent()
            if arrival is None:
                self.on_message(Heartbeat(event_time()))  # a display counts its seconds on
            elif isinstance(arrival.message, HostReady):
                self._update()
                return True
        return False

    def _leave_out(self, error: TfdistError) -> None:
        """Give up the hosts that the preflight has found to be lost or, if none is, those that are new.

        Raises:
            TfdistError: `error`, if it cannot be because of them.
        """
        hosts = list(self.fleet.lost) or self._new
        if not hosts or error.exit_code > INTERRUPTED:
            raise error
        self.on_message(Note("tfdist", f"{error}; continuing without {shortened(host.name for host in hosts)}"))
        for host in hosts:
            self.rejoin.lose(host)
        self._new = [host for host in self._new if host not in hosts]
        self._changed = True
