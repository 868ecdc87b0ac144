"""The agents of a job: started together, asked together, ended together."""

import resource
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from tfdist.launch.agents.channel import CLEAN_UP_S, Channel, Inbox, heartbeats
from tfdist.launch.agents.messages import AgentLost, Hello, Interrupted, Message, Reply, ToAgent
from tfdist.launch.agents.signals import interruptions
from tfdist.launch.agents.silence import SilenceDetector
from tfdist.launch.errors import Problem, TfdistError, raise_problems
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.transport import connection_problem
from tfdist.launch.policy import Policy

CHANNEL_DESCRIPTORS, SPARE_DESCRIPTORS = 3, 256
"""Open files: per host, and for logs and everything else."""
POLL_S = 1.0
"""How often agents that owe an answer are checked for silence."""


@dataclass
class Fleet:
    """An agent on every host, and the description of each host."""

    channels: Mapping[Host, Channel]
    inbox: Inbox
    policy: Policy
    hellos: dict[Host, Mapping[str, Any]] = field(default_factory=dict)
    """`agent.describe()` of each host with an agent."""
    behind_s: dict[Host, float] = field(default_factory=dict)
    """How far each host's clock is behind this machine's; includes the latency of its hello."""
    lost: dict[Host, Problem] = field(default_factory=dict)
    """Hosts that could not be connected, or whose agent was lost."""
    silence: SilenceDetector = field(init=False)

    def __post_init__(self) -> None:
        self.silence = SilenceDetector(self.policy.silence_s)

    def ask(self, requests: Mapping[Host, ToAgent], what: str, seconds: float) -> dict[Host, Reply]:
        """Send all requests at once and wait for the answers, which are in the order of `requests`.

        A host that is lost, or does not answer within `seconds`, is added to `lost`. Hosts in `lost` get no request.

        Args:
            requests: one per host.
            what: the verb for the message about a late answer, as in `reserve ports`.
            seconds: for all answers together.

        Raises:
            TfdistError: interrupted.
        """
        answers: dict[Host, Reply] = {}
        for host in (host for host in requests if host not in self.lost):
            self.channels[host].send(requests[host])
        deadline = time.monotonic() + seconds
        while missing := [host for host in requests if host not in answers and host not in self.lost]:
            self._lose_silent()
            received = self._receive(min(deadline, time.monotonic() + POLL_S))
            if received is not None:
                host, message = received
                if isinstance(message, AgentLost):
                    self._lose(host, message.reason)
                elif isinstance(message, Reply) and host in missing:
                    answers[host] = message
            elif time.monotonic() >= deadline:
                for host in missing:
                    self._lose(host, f"it did not {what} within {seconds:g} s")
        return {host: answers[host] for host in requests if host in answers}

    def wait_for_hellos(self) -> None:
        """Wait until every host is in `hellos` or in `lost`.

        Raises:
            TfdistError: interrupted.
        """
        limit_s = self.policy.hello_s
        deadline = time.monotonic() + limit_s
        while missing := [host for host in self.channels if host not in self.hellos and host not in self.lost]:
            received = self._receive(deadline)
            if received is None:
                for host in missing:
                    self.lost[host] = connection_problem(host, f"did not say hello within {limit_s:g} s")
                break
            host, message = received
            if isinstance(message, AgentLost):
                self.lost.setdefault(host, connection_problem(host, message.reason))
            elif isinstance(message, Hello):
                self.hellos[host] = message.description
                self.behind_s[host] = self.channels[host].hello_at - float(message.description["clock"])
        self.hellos = {host: self.hellos[host] for host in self.channels if host in self.hellos}

    def _receive(self, until: float) -> tuple[Host, Message] | None:
        try:
            channel, message = self.inbox.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return None
        if channel is None:
            number = message.signal if isinstance(message, Interrupted) else signal.SIGINT
            raise TfdistError("interrupted before any task was started", 128 + number)
        return channel.host, message

    def _lose_silent(self) -> None:
        connected = [channel for host, channel in self.channels.items() if host not in self.lost]
        for channel, message in self.silence.newly_silent(connected, time.monotonic()):
            self._lose(channel.host, message.reason)

    def _lose(self, host: Host, reason: str) -> None:
        last = (reason.strip().splitlines() or ["its stream ended"])[-1]
        fix = "check whether the host is overloaded, or out of memory or disk space, and retry"
        self.lost.setdefault(host, Problem(f"lost the agent ({last})", fix, host.name))


@contextmanager
def connect(hosts: Sequence[Host], policy: Policy | None = None, require_all: bool = True) -> Iterator[Fleet]:
    """An agent on every host, ended on exit. Signals become events in the inbox meanwhile.

    Raises:
        TfdistError: interrupted; the ssh client (or other transport) is missing; or, with `require_all`, hosts could
            not be connected (all are named). Without it, these hosts are in `Fleet.lost`.
    """
    policy = policy or Policy()
    inbox: Inbox = SimpleQueue()
    channels: dict[Host, Channel] = {}
    allow_descriptors(SPARE_DESCRIPTORS + CHANNEL_DESCRIPTORS * len(hosts))
    with interruptions(inbox):
        try:
            for host in hosts:
                channels[host] = Channel(host, inbox)
            with heartbeats(list(channels.values()), policy.heartbeat_s):
                fleet = Fleet(channels, inbox, policy)
                fleet.wait_for_hellos()
                if require_all:
                    raise_problems(fleet.lost[host] for host in hosts if host in fleet.lost)
                yield fleet
        finally:
            _close(list(channels.values()))


def allow_descriptors(number: int) -> None:
    """Raise this process's soft limit on open files to `number`, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if -1 < soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number if hard == -1 else min(number, hard), hard))


def _close(channels: Sequence[Channel]) -> None:
    for channel in channels:
        channel.close_stdin()
    until = time.monotonic() + CLEAN_UP_S
    for channel in channels:
        channel.close(max(0.0, until - time.monotonic()))
