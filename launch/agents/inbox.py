"""The queue of everything that happens in a job: messages from agents, and signals that the launcher receives."""

import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import NamedTuple

from tfdist.launch.agents.launcher_messages import AgentLost, HostReady, Interrupted, NextTurn, Note
from tfdist.launch.agents.messages import FromAgent
from tfdist.launch.hosts.host import Host

UNREAD_BYTES = 32 << 20
"""Memory of the agents' messages that wait in the inbox, all hosts together. With more, streams are left unread, and
the tasks block."""

Content = FromAgent | AgentLost | HostReady | Interrupted | NextTurn | Note


class Arrival(NamedTuple):
    """A message, stamped when it arrived, before it waited in the inbox."""

    host: Host | None
    """Whose agent sent it; None: from the launcher itself."""
    message: Content
    at: float
    """Monotonic."""
    size: int
    """Bytes that count against the limit of the inbox; 0 if the launcher sent it."""


class Inbox:
    """A queue that blocks the readers of agents' messages while it holds more than `limit` bytes of them.

    Messages of the launcher itself never wait. Signals come before everything else.
    """

    def __init__(self, limit: int = UNREAD_BYTES) -> None:
        self._limit, self._used, self._closed = limit, 0, False
        self._changed = threading.Condition()
        self._queue: SimpleQueue[Arrival] = SimpleQueue()
        self._signals: deque[Arrival] = deque()
        """Not delivered yet. They are in the queue, too, to wake `get`."""
        self._not_before: dict[Host | None, float] = {}
        """Monotonic time before which messages from a host are not delivered."""

    def put(
        self,
        host: Host | None,
        message: FromAgent | AgentLost | HostReady | Interrupted | NextTurn | Note,
        size: int = 0,
    ) -> None:
        """Add a message, with a size as soon as there is room for it; drop it if the inbox is closed."""
        arrival = Arrival(host, message, time.monotonic(), size)
        if size:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or not self._used or self._used + size <= self._limit)
                self._used += size
        if self._closed:
            return
        if isinstance(message, Interrupted):
            self._signals.append(arrival)
        self._queue.put(arrival)

    def get(self, timeout: float) -> Arrival:
        """The next message.

        Raises:
            queue.Empty: none came within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            if self._signals:
                return self._signals.popleft()
            arrival = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            self._make_room(arrival.size)
            stale = arrival.at < self._not_before.get(arrival.host, 0.0)
            if not stale and not isinstance(arrival.message, Interrupted):
                return arrival

    def drop_from(self, host: Host) -> None:
        """Deliver no message that has come from this host so far: its next ones are from another agent."""
        self._not_before[host] = time.monotonic()

    def _make_room(self, size: int) -> None:
        if size:
            with self._changed:
                self._used -= size
                self._changed.notify_all()

    def close(self) -> None:
        """Let all senders continue: nothing will be read any more, so messages are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
