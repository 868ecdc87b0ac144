"""The agents of a job, all connected: started together, greeted, and ended together."""

import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from tfdist.launch.channel import Channel, Inbox
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts import Host
from tfdist.launch.machine import Machine, Machines
from tfdist.launch.messages import AgentLost, BeforeStart, Hello, Interrupted, Message, Note, ToAgent
from tfdist.launch.policy import Policy
from tfdist.launch.supervise import interruptions
from tfdist.launch.transport import explain

SKEW_S = 2.0
"""Clocks further apart than this make the order of events doubtful."""


@dataclass
class Fleet:
    """An agent on every host, and what each said of its host."""

    channels: Mapping[Host, Channel]
    inbox: Inbox
    policy: Policy
    hellos: Mapping[Host, Mapping[str, Any]]
    notes: tuple[Note, ...] = ()

    @property
    def machines(self) -> Machines:
        """What each host offers.

        Raises:
            TfdistError: a GPU that was named is not there.
        """
        return {host: _machine(host, hello) for host, hello in self.hellos.items()}

    def ask(self, questions: Mapping[Host, ToAgent], what: str, seconds: float) -> dict[Host, BeforeStart]:
        """Each host's answer to its question, all asked at once.

        Raises:
            TfdistError: an agent is lost or takes longer than `seconds`, or the user has had enough.
        """
        for host, question in questions.items():
            self.channels[host].say(question)
        answers: dict[Host, BeforeStart] = {}
        deadline = time.monotonic() + seconds
        while len(answers) < len(questions):
            missing = [host for host in questions if host not in answers]
            try:
                host, message = answer(self.inbox, deadline, what, missing)
            except TimeoutError as error:
                raise TfdistError(str(error), ExitCode.HOST_LOST) from None
            if isinstance(message, AgentLost):
                last = message.reason.splitlines()[-1]
                raise TfdistError(f"lost the agent on {host.name}: {last}", ExitCode.HOST_LOST)
            if isinstance(message, BeforeStart):
                answers[host] = message
        return answers


def _machine(host: Host, hello: Mapping[str, Any]) -> Machine:
    machine = Machine.from_description(hello)
    try:
        return machine.only(host.gpus)
    except KeyError as error:
        shown = ", ".join(machine.gpu_ids) or "none"
        raise TfdistError(f"{host.name} has no GPU {error}: it shows {shown}") from None


@contextmanager
def connect(hosts: Sequence[Host], policy: Policy | None = None) -> Iterator[Fleet]:
    """An agent on every host that has said hello, and none any more afterwards. Signals are events meanwhile.

    Raises:
        TfdistError: one could not be reached (all such are named), or the user has had enough.
    """
    policy = policy or Policy()
    inbox: Inbox = SimpleQueue()
    channels: dict[Host, Channel] = {}
    with interruptions(inbox):
        try:
            for host in hosts:
                channels[host] = Channel(host, inbox)
            yield _greeted(channels, inbox, policy)
        finally:
            end(channels.values())


def end(channels: Iterable[Channel]) -> None:
    """Let all agents clean up at the same time, and wait for them."""
    every = list(channels)
    for channel in every:
        channel.let_go()
    for channel in every:
        channel.close()


def _greeted(channels: Mapping[Host, Channel], inbox: Inbox, policy: Policy) -> Fleet:
    hellos: dict[Host, Mapping[str, Any]] = {}
    notes: list[Note] = []
    lost: dict[Host, str] = {}
    deadline = time.monotonic() + policy.hello_s
    while missing := [host for host in channels if host not in hellos and host not in lost]:
        try:
            host, message = answer(inbox, deadline, "say hello", missing)
        except TimeoutError:
            lost |= {host: explain(host, f"did not say hello within {policy.hello_s:g} s") for host in missing}
            break
        if isinstance(message, AgentLost):
            lost[host] = explain(host, message.reason)
        elif isinstance(message, Hello):
            hellos[host] = message.description
            notes += clock_note(host, time.time() - float(message.description["clock"]))
    if lost:
        raise TfdistError("\n".join(lost.values()), ExitCode.HOST_LOST)
    return Fleet(channels, inbox, policy, {host: hellos[host] for host in channels}, tuple(notes))


def clock_note(host: Host, ahead_s: float) -> list[Note]:
    """What to say of a host whose clock is so many seconds behind ours."""
    if abs(ahead_s) <= SKEW_S:
        return []
    how = "behind" if ahead_s > 0 else "ahead of"
    text = f"its clock is {abs(ahead_s):.1f} s {how} this machine's: the order of events is doubtful; set up NTP there"
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
