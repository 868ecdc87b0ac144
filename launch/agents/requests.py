"""Requests to agents and their answers, which arrive in the inbox among all other messages."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Protocol

from tfdist.launch.agents.inbox import Message
from tfdist.launch.agents.messages import (
    AgentEnded,
    CheckFolder,
    Dial,
    DialResult,
    DumpStacks,
    EndAgent,
    FolderChecked,
    Inspect,
    Inspected,
    LinkSpeed,
    MeasureLink,
    NotReserved,
    Prepare,
    Prepared,
    Reply,
    Reserve,
    Reserved,
    StacksDumped,
    ToAgent,
)
from tfdist.launch.hosts.host import Host

AnyRequest = Prepare | EndAgent | Reserve | Dial | MeasureLink | Inspect | DumpStacks | CheckFolder
OnReply = Callable[[Reply], None]


class Sender(Protocol):
    """A channel."""

    host: Host

    def send(self, message: ToAgent) -> None:  # noqa: D102
        ...


@dataclass
class Requests:
    """Open requests. Their numbers are unique per job, so an answer that comes too late is never taken for another."""

    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _open: dict[int, tuple[Host, OnReply]] = field(default_factory=dict)

    def send(self, channel: Sender, request: AnyRequest, on_reply: OnReply) -> None:
        """Send a request; `on_reply` is called with its answer, if one comes."""
        number = next(self._numbers)
        self._open[number] = channel.host, on_reply
        channel.send(replace(request, request=number))

    def expects(self, host: Host | None, reply: Reply) -> bool:
        """Whether it answers an open request to this host."""
        return reply.request in self._open and self._open[reply.request][0] == host

    def take(self, host: Host | None, message: Message) -> None:
        """Pass an answer to the request that it belongs to; do nothing with any other message."""
        if isinstance(message, Reply) and self.expects(host, message):
            _, on_reply = self._open.pop(message.request)
            on_reply(message)

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
        case (
            (Reserve(), NotReserved())
            | (Prepare(), Prepared())
            | (EndAgent(), AgentEnded())
            | (MeasureLink(), LinkSpeed())
            | (Inspect(), Inspected())
            | (DumpStacks(), StacksDumped())
            | (CheckFolder(), FolderChecked())
        ):
            return True
    return False
