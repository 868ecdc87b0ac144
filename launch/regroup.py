"""The next attempt of a job on the hosts that answer."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tfdist.launch.agent_program.clock import event_time
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.launcher_messages import HostReady, Note, OnMessage
from tfdist.launch.agents.messages import Heartbeat
from tfdist.launch.attempts import Saved
from tfdist.launch.errors import SIGNALS, TfdistError
from tfdist.launch.host_choice import HostChoice, NextPlan
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job
from tfdist.launch.rejoin import Rejoin
from tfdist.launch.text import shortened


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

    def next_plan(self, job: Job, saved: Saved) -> NextPlan:
        """The job of the next attempt. It is the same object, with the ports that it has, if no host has changed.

        If the hosts are too few, waits for at most `start_timeout_s` for more. Arguments as for `HostChoice.plan`.

        Raises:
            TfdistError: the job cannot be continued, or interrupted (exit code 128 + signal).
        """
        self._new, self._changed = [], False
        self._update()
        deadline = time.monotonic() + self.fleet.policy.start_timeout_s
        while True:
            plan = self._plan(job, saved, deadline)
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

    def _plan(self, job: Job, saved: Saved, deadline: float) -> NextPlan:
        waits = False
        try:
            while True:
                wanted = [host for host in self.rejoin.wanted if host in self.fleet.hellos]
                self.fleet.hellos = {host: self.fleet.hellos[host] for host in (*wanted, *self.fleet.hellos)}
                try:
                    return self.choice.plan(job, {host: self.fleet.hellos[host] for host in wanted}, saved)
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
        if not hosts or error.exit_code > SIGNALS:
            raise error
        self.on_message(Note("tfdist", f"{error}; continuing without {shortened(host.name for host in hosts)}"))
        for host in hosts:
            self.rejoin.lose(host)
        self._new = [host for host in self._new if host not in hosts]
        self._changed = True
