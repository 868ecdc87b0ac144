"""The agents of a job, all connected: started together, greeted, and ended together."""

import resource
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from tfdist.launch.agents.channel import CLEAN_UP_S, Channel, Inbox, heartbeats
from tfdist.launch.agents.messages import AgentLost, Hello, Interrupted, Message, Note, Reply, ToAgent
from tfdist.launch.agents.signals import interruptions
from tfdist.launch.agents.silence import SilenceDetector
from tfdist.launch.errors import ExitCode, TfdistError, raise_problems
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.transport import connection_problem
from tfdist.launch.policy import Policy

SKEW_S = 2.0
"""Clocks further apart than this make the order of events doubtful."""
DESCRIPTORS_OF_A_CHANNEL, SPARE_DESCRIPTORS = 3, 256
"""Open files: of each host, and for logs and everything else."""
LOOK_S = 1.0
"""How often it is looked whether an agent that owes an answer has fallen silent."""


@dataclass
class Fleet:
    """An agent on every host, and what each said of its host."""

    channels: Mapping[Host, Channel]
    inbox: Inbox
    policy: Policy
    hellos: Mapping[Host, Mapping[str, Any]]
    behind_s: Mapping[Host, float] = field(default_factory=dict)
    """How far each host's clock is behind ours, the way of its hello included."""
    lost: dict[Host, str] = field(default_factory=dict)
    """Hosts without an agent, and what was last heard of it; none after `connect`."""
    silence: SilenceDetector = field(init=False)

    def __post_init__(self) -> None:
        self.silence = SilenceDetector(self.policy.silence_s)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What is to be said of the hosts' clocks."""
        return tuple(note for host, behind_s in self.behind_s.items() for note in clock_note(host, behind_s))

    def ask(self, questions: Mapping[Host, ToAgent], what: str, seconds: float) -> dict[Host, Reply]:
        """Each host's answer to its question, all asked at once; in their order, whoever was the first.

        Raises:
            TfdistError: an agent is lost or takes longer than `seconds`, or the user has had enough.
        """
        answers: dict[Host, Reply] = {}
        try:
            for host, message in self._replies(questions, what, seconds):
                if isinstance(message, AgentLost):
                    last = message.reason.splitlines()[-1]
                    raise TfdistError(f"lost the agent on {host.name}: {last}", ExitCode.HOST_LOST)
                answers[host] = message
        except TimeoutError as error:
            raise TfdistError(str(error), ExitCode.HOST_LOST) from None
        return {host: answers[host] for host in questions}

    def inquire(self, questions: Mapping[Host, ToAgent], what: str, seconds: float) -> dict[Host, Reply]:
        """As `ask`, but a host that does not answer is noted among the lost ones, which are not asked any more.

        Raises:
            TfdistError: the user has had enough.
        """
        asked = {host: question for host, question in questions.items() if host not in self.lost}
        answers: dict[Host, Reply] = {}
        try:
            for host, message in self._replies(asked, what, seconds):
                if isinstance(message, AgentLost):
                    self.lost.setdefault(host, message.reason)
                else:
                    answers[host] = message
        except TimeoutError:
            silent = {host: f"the agent did not {what} within {seconds:g} s" for host in asked if host not in answers}
            self.lost = silent | self.lost
        return {host: answers[host] for host in asked if host in answers}

    def _replies(
        self, questions: Mapping[Host, ToAgent], what: str, seconds: float
    ) -> Iterator[tuple[Host, Reply | AgentLost]]:
        """Each host's answer as it comes, and every agent that is lost meanwhile.

        Raises:
            TimeoutError: an agent takes longer than `seconds`.
            TfdistError: the user has had enough.
        """
        for host, question in questions.items():
            self.channels[host].send(question)
        deadline = time.monotonic() + seconds
        missing = list(questions)
        while missing:
            for host, message in (*self._fallen_silent(), *self._next(deadline, what, missing)):
                if isinstance(message, AgentLost) or (isinstance(message, Reply) and host in missing):
                    missing = [each for each in missing if each != host]
                    yield host, message

    def _next(self, deadline: float, what: str, missing: Sequence[Host]) -> list[tuple[Host, Message]]:
        """What comes next; nothing, if that takes a while.

        Raises:
            TimeoutError: the deadline is over.
            TfdistError: the user has had enough.
        """
        soon = time.monotonic() + LOOK_S
        try:
            return [answer(self.inbox, min(deadline, soon), what, missing)]
        except TimeoutError:
            if deadline <= soon:
                raise
            return []

    def _fallen_silent(self) -> list[tuple[Host, AgentLost]]:
        there = [channel for host, channel in self.channels.items() if host not in self.lost]
        return [(channel.host, lost) for channel, lost in self.silence.newly_silent(there, time.monotonic())]


@contextmanager
def connect(hosts: Sequence[Host], policy: Policy | None = None) -> Iterator[Fleet]:
    """An agent on every host that has said hello, and none any more afterwards. Signals are events meanwhile.

    Raises:
        TfdistError: one could not be reached (all such are named), or the user has had enough.
    """
    with connect_some(hosts, policy) as fleet:
        raise_problems(connection_problem(host, fleet.lost[host]) for host in hosts if host in fleet.lost)
        yield fleet


@contextmanager
def connect_some(hosts: Sequence[Host], policy: Policy | None = None) -> Iterator[Fleet]:
    """As `connect`, but hosts that could not be reached are among the fleet's lost ones.

    Raises:
        TfdistError: the program that connects is not there, or the user has had enough.
    """
    policy = policy or Policy()
    inbox: Inbox = SimpleQueue()
    channels: dict[Host, Channel] = {}
    allow_descriptors(SPARE_DESCRIPTORS + DESCRIPTORS_OF_A_CHANNEL * len(hosts))
    with interruptions(inbox):
        try:
            for host in hosts:
                channels[host] = Channel(host, inbox)
            with heartbeats(list(channels.values()), policy.heartbeat_s):
                yield _greeted(channels, inbox, policy)
        finally:
            end(channels.values())


def allow_descriptors(wanted: int) -> None:
    """Raise this process's limit of open files to so many, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if -1 < soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == -1 else min(wanted, hard), hard))


def end(channels: Iterable[Channel]) -> None:
    """Let all agents clean up at the same time, and wait for them."""
    every = list(channels)
    for channel in every:
        channel.close_stdin()
    until = time.monotonic() + CLEAN_UP_S
    for channel in every:
        channel.close(max(0.0, until - time.monotonic()))


def _greeted(channels: Mapping[Host, Channel], inbox: Inbox, policy: Policy) -> Fleet:
    hellos: dict[Host, Mapping[str, Any]] = {}
    behind_s: dict[Host, float] = {}
    lost: dict[Host, str] = {}
    deadline = time.monotonic() + policy.hello_s
    while missing := [host for host in channels if host not in hellos and host not in lost]:
        try:
            host, message = answer(inbox, deadline, "say hello", missing)
        except TimeoutError:
            lost |= dict.fromkeys(missing, f"did not say hello within {policy.hello_s:g} s")
            break
        if isinstance(message, AgentLost):
            lost[host] = message.reason
        elif isinstance(message, Hello):
            hellos[host] = message.description
            behind_s[host] = channels[host].hello_at - float(message.description["clock"])
    said = {host: hellos[host] for host in channels if host in hellos}
    return Fleet(channels, inbox, policy, said, {host: behind_s[host] for host in said}, lost)


def clock_note(host: Host, behind_s: float) -> list[Note]:
    """What to say of a host whose clock is so many seconds behind ours."""
    if abs(behind_s) <= SKEW_S:
        return []
    how = "behind" if behind_s > 0 else "ahead of"
    text = f"its clock is {abs(behind_s):.1f} s {how} this machine's: the order of events is doubtful; set up NTP there"
    return [Note(host.name, text)]


def answer(inbox: Inbox, deadline: float, what: str, waited_for: Sequence[Host]) -> tuple[Host, Message]:
    """The next message of an agent before any task runs, and its host.

    Raises:
        TimeoutError: nothing came by then.
        TfdistError: the user has had enough.
    """
    try:
        channel, message = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
    except Empty:
        names = ", ".join(host.name for host in waited_for)
        raise TimeoutError(f"the agent on {names} did not {what} in time: is the host overloaded?") from None
    if channel is None:
        number = message.signal if isinstance(message, Interrupted) else signal.SIGINT
        raise TfdistError("interrupted before any task was started", 128 + number)
    return channel.host, message
