"""Hosts behind shell scripts that stand in for ssh, and channels to agents on them."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import Empty
from typing import Any

from tfdist.launch.agents.channel import Channel
from tfdist.launch.agents.inbox import Arrival, Inbox
from tfdist.launch.agents.messages import Start
from tfdist.launch.hosts.host import Host


def host(name: str, script: str = 'exec "$@"', **values: Any) -> Host:
    """A host behind a shell script that receives the agent's command as its arguments."""
    return Host(name, "127.0.0.1", prefix=("sh", "-c", script, "stand-in"), python=sys.executable, **values)


def wait_for_message(inbox: Inbox, kind: type, seconds: float = 20.0) -> Arrival:
    """The next message of this kind; others are dropped."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            arrival = inbox.get(deadline - time.monotonic())
        except Empty:
            raise AssertionError(f"no {kind.__name__} within {seconds:g} s") from None
        if isinstance(arrival.message, kind):
            return arrival


@contextmanager
def channel_to(one: Host, inbox: Inbox) -> Iterator[Channel]:
    """A channel to an agent on this host."""
    channel = Channel(one, inbox)
    try:
        yield channel
    finally:
        inbox.close()
        channel.close(10.0)


def python_task(code: str, name: str = "worker-0", env: Mapping[str, str] | None = None) -> Start:
    """Starts a task that runs this Python code."""
    return Start(name, (sys.executable, "-S", "-c", code), env or {}, "/", (), None)
