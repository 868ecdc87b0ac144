"""The queue of everything that happens in a job: messages from agents, and signals that the launcher receives."""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from queue import SimpleQueue
from typing import Any, NamedTuple

from tfdist.launch.agents.messages import FromAgent, Output
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.text import replace_surrogates
from tfdist.launch.threads import start_thread
from tfdist.launch.typed_json import with_texts


@dataclass(frozen=True)
class AgentLost:
    """An agent's stream ended, or no message came for too long."""

    host: str
    reason: str
    time: float = 0.0
    """When the last message came from it."""


@dataclass(frozen=True)
class HostReady:
    """A host that the job has lost, or that is new, can be used by the next attempt."""

    host: str


@dataclass(frozen=True)
class Note:
    """A note for the user about a host."""

    host: str
    text: str


@dataclass(frozen=True)
class Stopped:
    """The launcher stops these tasks: their exits after this entry are not failures."""

    tasks: tuple[str, ...]
    grace_s: float = 0.0
    """Seconds between SIGTERM and SIGKILL; 0: SIGKILL at once."""
    time: float = 0.0
    reason: str = ""
    """What has happened, as in `worker-1 failed`; empty if the job has succeeded, and its servers are stopped."""


@dataclass(frozen=True)
class Restarting:
    """The launcher starts these tasks again, once they have ended."""

    attempt: int
    """The number of the attempt that starts."""
    tasks: tuple[str, ...]
    whole: bool
    """They are all tasks of the job from now on; False: the other tasks continue."""
    reason: str
    """What has happened, and what is restarted from where."""
    delay_s: float = 0.0
    """Seconds before the start."""
    time: float = 0.0
    hosts: tuple[str, ...] = ()
    """Hosts of the tasks; empty: as before."""


@dataclass(frozen=True)
class Interrupted:
    """The launcher received this signal."""

    signal: int
    by: str = ""
    """The command that asked for it; empty for a signal from outside."""
    of_agent: bool = False
    """An agent has received it; if it is a scheduler's, the launcher will, too."""


@dataclass(frozen=True)
class StacksWanted:
    """A user has asked for the stacks of all tasks."""


@dataclass(frozen=True)
class NextTurn:
    """Release the tasks that wait at the barrier: for this turn, or for good (None)."""

    turn: Mapping[str, Any] | None
    """JSON that each task receives."""


Content = FromAgent | AgentLost | HostReady | Interrupted | NextTurn | Note | StacksWanted
"""What an inbox delivers."""
Message = Content | Restarting | Stopped
OnMessage = Callable[[Message], None]
"""Called with every message of a running job. The loop waits for it, so it must return quickly."""


def readable(message: Message) -> Message:
    """The message with U+FFFD in place of lone surrogates, which no file, page or terminal can take.

    `Output` stays as it is: in it they stand for the bytes that the logs keep.
    """
    if isinstance(message, Output):
        return message
    values = {each.name: with_texts(getattr(message, each.name), replace_surrogates) for each in fields(message)}
    return replace(message, **values)


UNREAD_BYTES = 32 << 20
"""Memory of the agents' messages that wait in the inbox, all hosts together. With more, streams are left unread, and
the tasks block."""


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
    """A queue of messages. While it holds more than `limit` bytes of agents' messages, no more of them should be added:
    senders check `has_room` first, and `when_room` says when to check again.

    Messages of the launcher itself never wait. Signals come before everything else.
    """

    def __init__(self, limit: int = UNREAD_BYTES) -> None:
        self._limit, self._closed = limit, False
        self.used = 0
        """Bytes of the agents' messages that wait."""
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        """Called once there is room."""
        self._queue: SimpleQueue[Arrival] = SimpleQueue()
        self._signals: deque[Arrival] = deque()
        """Not delivered yet. They are in the queue, too, to wake `get`."""
        self._not_before: dict[Host | None, float] = {}
        """Monotonic time before which messages from a host are not delivered."""

    def put(self, host: Host | None, message: Content, size: int = 0) -> None:
        """Add a message; drop it if the inbox is closed."""
        arrival = Arrival(host, message, time.monotonic(), size)
        if self._closed:
            return
        if size:
            with self._lock:
                self.used += size
        if isinstance(message, Interrupted):
            self._signals.append(arrival)
        self._queue.put(arrival)

    def has_room(self, size: int) -> bool:
        """Whether a message of this size may be added: one that is larger than the limit may if it is alone."""
        return self._closed or not self.used or self.used + size <= self._limit

    def when_room(self, act: Callable[[], None]) -> None:
        """Call `act` once a message is taken and half of the limit is free; now, if none waits or it is closed."""
        with self._lock:
            if self.used and not self._closed:
                self._waiting.append(act)
                return
        act()

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
            if arrival.size:
                with self._lock:
                    self.used -= arrival.size
                self._make_room()
            stale = arrival.at < self._not_before.get(arrival.host, 0.0)
            if not stale and not isinstance(arrival.message, Interrupted):
                return arrival

    def _make_room(self) -> None:
        half_free = self.used <= self._limit // 2  # half: 1,000 hosts must not pause and resume for each message
        if self._waiting and (half_free or self._closed):
            with self._lock:
                waiting, self._waiting = self._waiting, []
            for act in waiting:
                act()

    @property
    def interrupted(self) -> Interrupted | None:
        """The first signal that was not delivered yet."""
        message = self._signals[0].message if self._signals else None
        return message if isinstance(message, Interrupted) else None

    def drop_from(self, host: Host) -> None:
        """Deliver no message that has come from this host so far: its next ones are from another agent."""
        self._not_before[host] = time.monotonic()

    def close(self) -> None:
        """Drop what comes: nothing will be read any more. Calls those that wait for room."""
        with self._lock:
            self._closed = True
        self._make_room()


INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Ctrl-C, `kill`, a closed terminal, and a scheduler that will end the job soon."""


REPEAT_S = 0.2
"""The same signal within this time counts once: `timeout` and others send it to the process and then to its group."""


@contextmanager
def interruptions(put: Callable[[Interrupted], None]) -> Iterator[None]:
    """Pass `INTERRUPTIONS` to `put`. Ignored signals (nohup) stay ignored.

    From a thread: a handler in Python runs only when the main thread does, which may wait for a message. The thread
    learns of a signal at once, whichever thread the kernel interrupts (`signal.set_wakeup_fd`).
    Outside the main thread, which alone can receive signals, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    active = [number for number in INTERRUPTIONS if signal.getsignal(number) is not signal.SIG_IGN]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def put_all() -> None:
        last: dict[int, float] = {}
        while data := os.read(reader, 64):
            now = time.monotonic()
            for number in [number for number in data if number in active]:
                if now - last.get(number, -REPEAT_S) >= REPEAT_S:
                    put(Interrupted(number))
                last[number] = now

    try:
        thread = start_thread(put_all, "signals")
    except TfdistError:
        os.close(reader)
        os.close(writer)
        raise
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    previous = {number: signal.signal(number, lambda *_: None) for number in active}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(writer)
        thread.join()
        os.close(reader)
