"""Connects to the hosts of a job: starts an agent on each, waits for the hellos, and ends the agents afterwards."""

import math
import re
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tfdist.launch.agents.channel import CLEAN_UP_S, DESCRIPTORS, Channel, heartbeats
from tfdist.launch.agents.fleet import POLL_S, Fleet
from tfdist.launch.agents.inbox import AgentLost, Inbox, interruptions
from tfdist.launch.agents.messages import Alive, Configure, Hello, LoggedIn
from tfdist.launch.agents.template import ForkedAgent, Template
from tfdist.launch.errors import raise_problems
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.transport import connection_problem
from tfdist.launch.policy import Policy

SPARE_DESCRIPTORS = 256
"""Open files besides those of channels and logs."""
LOGINS_PER_GATEWAY = 8
"""Logins through one jump host at the same time. By default sshd drops some above 10 (MaxStartups 10:30:100)."""
OVERLOADED = re.compile(r"kex_exchange_identification|ssh_exchange_identification|banner exchange")
"""An sshd closed the connection before the login, as it does above MaxStartups."""
MOST_TRIES, RETRY_S = 4, 1.0
"""Connections to a host whose sshd is overloaded; the pause before the next one, times the number of tries."""


PROGRESS_S = 0.1
"""Minimum seconds between two calls of an `OnProgress`."""
OnProgress = Callable[[Sequence[Host]], None]
"""Receives the hosts that are not ready yet, once a second or more often."""


@contextmanager
def connect(
    hosts: Sequence[Host],
    policy: Policy | None = None,
    require_all: bool = True,
    on_progress: OnProgress = lambda _: None,
    inbox: Inbox | None = None,
    template: Template | None = None,
) -> Iterator[Fleet]:
    """An agent on every host, ended on exit. Signals become messages in the inbox meanwhile, by default a new one.

    The agent of this machine is forked from `template`, if there is one and it forks in time.

    Raises:
        TfdistError: interrupted; the ssh client (or other transport) is missing; or, with `require_all`, hosts could
            not be connected (all are named). Without it, these hosts are in `Fleet.lost`.
    """
    policy = policy or Policy()
    fleet = Fleet(inbox or Inbox(), policy, template=template)
    with interruptions(lambda message: fleet.inbox.put(None, message)):
        try:
            with heartbeats(fleet.channels, policy.heartbeat_s):
                connect_more(fleet, hosts, on_progress)
                fleet.hellos = {host: fleet.hellos[host] for host in hosts if host in fleet.hellos}
                if require_all:
                    raise_problems(fleet.lost[host] for host in hosts if host in fleet.lost)
                yield fleet
        finally:
            fleet.inbox.close()
            close_all(list(fleet.channels.values()), policy)


def connect_more(fleet: Fleet, hosts: Sequence[Host], on_progress: OnProgress = lambda _: None) -> None:
    """Start an agent on each host, and wait until every one of them is in `fleet.hellos` or `fleet.lost`.

    Raises:
        TfdistError: interrupted; the ssh client (or other transport) is missing.
    """
    allow_descriptors(SPARE_DESCRIPTORS + DESCRIPTORS * (len(fleet.channels) + len(hosts)))
    _Connecting(fleet, on_progress, dict.fromkeys(hosts, 0.0)).run()


def allow_descriptors(number: int) -> None:
    """Raise this process's soft limit on open files to `number`, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if -1 < soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number if hard == -1 else min(number, hard), hard))


@dataclass
class _Connecting:
    """The hosts that have no agent yet. Times are monotonic."""

    fleet: Fleet
    on_progress: OnProgress
    not_before: dict[Host, float]
    """When each host that waits for its turn may be connected."""
    late_at: dict[Host, float] = field(default_factory=dict)
    """The deadline of each login that was started."""
    describing: dict[Host, None] = field(default_factory=dict)
    """Logged in, but without a description yet."""
    tries: Counter[Host] = field(default_factory=Counter)
    deadline: float = math.inf
    """Deadline of the descriptions."""

    def run(self) -> None:
        """Return when every host is in `fleet.hellos` or `fleet.lost`.

        Raises:
            TfdistError: interrupted.
        """
        check_at = show_at = time.monotonic()
        self.deadline = check_at + self.fleet.policy.start_timeout_s
        while self.not_before or self.late_at or self.describing:
            self._start_waiting()
            if time.monotonic() >= show_at:
                self.on_progress([*self.late_at, *self.describing, *self.not_before])
                show_at = time.monotonic() + PROGRESS_S
            arrival = self.fleet.receive(check_at)
            if arrival is not None and arrival.host is not None:
                self._handle(arrival.host, arrival.message)
            if arrival is None or arrival.at >= check_at:
                check_at = time.monotonic() + POLL_S
                self._give_up(time.monotonic())

    def _start_waiting(self) -> None:
        if not self.not_before:
            return
        policy = self.fleet.policy
        logins = Counter(host.gateway for host in self.late_at)
        now = time.monotonic()
        for host in [host for host, not_before in self.not_before.items() if now >= not_before]:
            if not host.gateway or logins[host.gateway] < LOGINS_PER_GATEWAY:
                logins[host.gateway] += 1
                del self.not_before[host]
                self.tries[host] += 1
                template = self.fleet.template if host.local and not host.python else None
                channel = self.fleet.channels[host] = Channel(host, self.fleet.inbox, template)
                launcher_timeout_s = math.inf if host.local else policy.launcher_timeout_s
                channel.send(Configure(policy.grace_s, launcher_timeout_s, policy.kill_wait_s))
                self.late_at[host] = time.monotonic() + policy.login_s

    def _handle(self, host: Host, message: object) -> None:
        match message:
            case LoggedIn() | Alive() if host in self.late_at:
                del self.late_at[host]
                self.describing[host] = None
            case Hello(description) if host in self.describing:
                del self.describing[host]
                self.fleet.hellos[host] = description
            case AgentLost(_, reason):
                if host in self.late_at and OVERLOADED.search(reason) and self.tries[host] < MOST_TRIES:
                    self.fleet.channels.pop(host).close(0.0)
                    del self.late_at[host]
                    self.not_before[host] = time.monotonic() + RETRY_S * self.tries[host]
                else:
                    self._lose(host, reason)

    def _give_up(self, now: float) -> None:
        """Lose the hosts that are late."""
        policy = self.fleet.policy
        for host in [host for host, late_at in self.late_at.items() if now >= late_at]:
            self._lose(host, f"did not say hello within {policy.login_s:g} s")
        alive = [channel for host in self.describing if (channel := self.fleet.channels[host]).alive]
        for channel, lost in self.fleet.silence.newly_silent(alive, now):
            self._lose(channel.host, lost.reason)
        if now >= self.deadline:
            within = f"within {policy.start_timeout_s:g} s"
            for host in list(self.describing):
                self._lose(host, f"did not describe itself {within}")
            for host in list(self.not_before):
                self._lose(host, f"not connected {within}: its jump host gets {LOGINS_PER_GATEWAY} logins at a time")

    def _lose(self, host: Host, reason: str) -> None:
        for waiting in (self.late_at, self.not_before, self.describing):
            waiting.pop(host, None)
        if host in self.fleet.channels and isinstance(self.fleet.channels[host].process, ForkedAgent):
            # the template is late, or has failed: once more without it
            self.fleet.channels.pop(host).close(0.0)
            self.fleet.inbox.drop_from(host)
            self.fleet.template = None
            self.not_before[host] = time.monotonic()
            self.deadline = max(self.deadline, time.monotonic() + self.fleet.policy.start_timeout_s)
            return
        if host in self.fleet.channels:
            self.fleet.channels[host].silent = True  # closing need not wait for its agent
        self.fleet.hellos.pop(host, None)
        self.fleet.lost.setdefault(host, connection_problem(host, reason))


def close_all(channels: Sequence[Channel], policy: Policy) -> None:
    """Make all these agents exit, and wait until they have cleaned up."""
    for channel in channels:
        channel.close_stdin()
    until = time.monotonic() + policy.grace_s + CLEAN_UP_S
    for channel in channels:
        channel.close(max(0.0, until - time.monotonic()))
