"""The agents of a job: requests to all of them, and those that are lost."""

import math
import signal
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from queue import Empty
from typing import Any

from tfdist.launch.agents.channel import CLEAN_UP_S, Channel, SilenceDetector
from tfdist.launch.agents.inbox import AgentLost, Arrival, Inbox, Interrupted, Message
from tfdist.launch.agents.messages import (
    AnyRequest,
    Dial,
    DialResult,
    DumpStacks,
    Inspect,
    Reply,
    Reserve,
    Reserved,
    Terminated,
)
from tfdist.launch.agents.template import Template
from tfdist.launch.errors import Problem, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.policy import Policy
from tfdist.launch.text import last_line

OnReply = Callable[[Reply], None]
OnWait = Callable[[Collection[Host]], None]
"""Receives the hosts whose answer is missing, before each wait of at most a second."""


@dataclass
class Requests:
    """Open requests. Their numbers are unique per job, so an answer that comes too late is never taken for another."""

    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _open: dict[int, tuple[Host, AnyRequest, OnReply]] = field(default_factory=dict)

    def send(self, channel: Channel, request: AnyRequest, on_reply: OnReply) -> None:
        """Send a request; `on_reply` is called with its answer, if one comes."""
        number = next(self._numbers)
        self._open[number] = channel.host, request, on_reply
        channel.send(replace(request, request=number))

    def expects(self, host: Host | None, reply: Reply) -> bool:
        """Whether it answers an open request to this host."""
        return reply.request in self._open and self._open[reply.request][0] == host

    def take(self, host: Host | None, message: Message) -> Message:
        """Pass an answer to the request that it belongs to, without what it says of tasks that were not asked about.

        Returns:
            the answer as it was passed; any other message as it is.
        """
        if isinstance(message, Reply) and self.expects(host, message):
            _, request, on_reply = self._open.pop(message.request)
            answer = message.about(request.tasks if isinstance(request, Inspect | DumpStacks) else ())
            on_reply(answer)
            return answer  # type: ignore[return-value]
        return message

    def forget(self, host: Host) -> None:
        """Expect no more answers from a host that is lost."""
        self._open = {number: request for number, request in self._open.items() if request[0] != host}


def answers(request: AnyRequest, reply: Reply) -> bool:
    """Whether a reply is of the request's kind, with a value for each thing that was requested."""
    match request, reply:
        case Reserve(ports), Reserved(ports=reserved):
            return len(ports) == len(reserved) and all(reserved)
        case Dial(targets), DialResult(failures=failures):
            return len(targets) == len(failures)
    return type(request) is reply.reply_to


POLL_S = 1.0
"""Interval of the checks for silent agents while answers are missing."""


@dataclass
class Fleet:
    """An agent on every host, and the description of each host."""

    inbox: Inbox
    policy: Policy
    channels: dict[Host, Channel] = field(default_factory=dict)
    hellos: dict[Host, Mapping[str, Any]] = field(default_factory=dict)
    """`description.describe()` of each host with an agent."""
    lost: dict[Host, Problem] = field(default_factory=dict)
    """Hosts that could not be connected, or whose agent was lost."""
    requests: Requests = field(default_factory=Requests)
    template: Template | None = None
    """The agent on this machine is forked from it."""
    silence: SilenceDetector = field(init=False)

    def __post_init__(self) -> None:
        self.silence = SilenceDetector(self.policy.silence_s)

    @property
    def behind_s(self) -> dict[Host, float]:
        """How far each host's clock is behind this machine's, as `Channel.behind_s`."""
        return {host: self.channels[host].behind_s for host in self.hellos}

    def ask(
        self,
        requests: Mapping[Host, AnyRequest],
        what: str,
        seconds: float,
        on_wait: OnWait = lambda _: None,
    ) -> dict[Host, Reply]:
        """Send all requests at once and wait for the answers, which are in the order of `requests`.

        A host that is lost, or does not answer within `seconds`, is added to `lost`. Hosts in `lost` get no request.
        For use before tasks start; the supervisor uses `requests`.

        Args:
            requests: one per host.
            what: the verb for the message about a late answer, as in `reserve ports`.
            seconds: for all answers together.
            on_wait: see there.

        Raises:
            TfdistError: interrupted.
        """
        replies: dict[Host, Reply] = {}

        def keep(host: Host, reply: Reply) -> None:
            if answers(requests[host], reply):
                replies[host] = reply
            else:
                self.lose(host, f"its agent answered {type(requests[host]).__name__} with {reply}")

        for host in (host for host in requests if host not in self.lost):
            self.requests.send(self.channels[host], requests[host], partial(keep, host))
        deadline, check_at = time.monotonic() + seconds, -math.inf
        missing = dict.fromkeys(requests)  # what is done for each answer must not look at all hosts
        while missing:
            if time.monotonic() >= check_at:
                check_at = time.monotonic() + POLL_S
                self.lose_silent()
                missing = dict.fromkeys(host for host in missing if host not in self.lost)
            on_wait(missing)
            arrival = self.receive(min(deadline, time.monotonic() + POLL_S))
            if arrival is not None and arrival.host is not None:
                self.requests.take(arrival.host, arrival.message)
                if isinstance(arrival.message, AgentLost):
                    self.lose(arrival.host, arrival.message.reason)
                if arrival.host in replies or arrival.host in self.lost:
                    missing.pop(arrival.host, None)
            if time.monotonic() >= deadline and (arrival is None or arrival.at >= deadline):
                for host in missing:
                    self.lose(host, f"it did not {what} within {seconds:g} s")
                break
        return {host: replies[host] for host in requests if host in replies}

    def receive(self, until: float) -> Arrival | None:
        """The next message; None if none came before the monotonic time `until`.

        Raises:
            TfdistError: interrupted.
        """
        try:
            arrival = self.inbox.get(until - time.monotonic())
        except Empty:
            return None
        if isinstance(arrival.message, Interrupted):
            by = arrival.message.by
            how = f"stopped by '{by}'" if by else "interrupted"
            raise TfdistError(f"{how} before any task was started", 128 + arrival.message.signal)
        if isinstance(arrival.message, Terminated) and self.policy.kill_wait_s:
            raise TfdistError("interrupted before any task was started", 128 + signal.SIGTERM)
        return arrival

    def lose_silent(self) -> None:
        """Add agents that have been silent for too long to `lost`."""
        connected = [self.channels[host] for host in self.hellos if host not in self.lost]
        for channel, message in self.silence.newly_silent(connected, time.monotonic()):
            self.lose(channel.host, message.reason)

    def remove(self, host: Host) -> None:
        """Forget a host that was lost, and end the connection to its agent; nothing more arrives from it."""
        self.hellos.pop(host, None)
        self.lost.pop(host, None)
        self.requests.forget(host)
        channel = self.channels.pop(host, None)
        if channel is not None:
            channel.silent = channel.silent or not channel.lost
            channel.close(self.policy.grace_s + CLEAN_UP_S)  # an agent that has said that it leaves ends its tasks
            self.inbox.drop_from(host)

    def add(self, channel: Channel, hello: Mapping[str, Any]) -> None:
        """Take a connected agent, whose messages went to another inbox until now. It may be in `lost` afterwards."""
        host = channel.host
        self.channels[host], self.hellos[host] = channel, hello
        channel.deliver_to(self.inbox)
        if channel.lost:  # said to the other inbox
            self.lose(host, "its stream ended")

    def lose(self, host: Host, reason: str) -> None:
        """Add a host to `lost`."""
        fix = "check whether the host is overloaded, or out of memory or disk space, and retry"
        self.lost.setdefault(host, Problem(f"lost the agent ({last_line(reason)})", fix, host.name))
