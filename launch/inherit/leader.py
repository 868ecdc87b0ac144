"""The leader's side of the start barrier: it gathers the peers on its own TensorFlow port."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tfdist.launch.agents.probe import listen
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.inherit.wire import RECEIVE, Lines, given_up, send

TICK_S = 0.2
"""Between two looks at what other threads have changed."""
STATUS_S = 2.0
"""Between two messages to a peer that waits."""
SEND_S = 2.0
"""For a message to a peer; one that does not read it is dropped."""
LEAVE_S = 2.0
"""For all peers to close their connections after `go`, so that none is left on the port that TensorFlow binds next."""


@dataclass
class _Peer:
    """A connection, and what has come over it."""

    connection: socket.socket
    task: str = ""
    """Empty until its first message."""
    lines: Lines = field(default_factory=Lines)


class Gathering:
    """The connections of the peers that wait. Used by one thread."""

    def __init__(self, port: int, expected: tuple[str, ...], token: str) -> None:
        """Listen on `port`, which may be bound but not listening elsewhere.

        Args:
            port: TCP port, on all addresses of this machine.
            expected: the tasks to wait for.
            token: the tasks of one attempt have the same.

        Raises:
            OSError: the port is in use by another program.
        """
        self._expected, self._token = expected, token
        self._failed: Mapping[str, Any] = {}
        """The message of the peer that has given up."""
        self._selector = selectors.DefaultSelector()
        self._server = listen(port)
        self._server.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ)

    @property
    def missing(self) -> list[str]:
        """The tasks that do not wait here."""
        present = {peer.task for peer in self._peers}
        return [task for task in self._expected if task not in present]

    def run(self, stop: threading.Event, ready: Callable[[], bool], report: Callable[[list[str]], None]) -> bool:
        """Wait for all peers; then, and once `ready` says so, let them go. Returns False if `stop` was set before.

        Args:
            stop: ends the wait.
            ready: whether this task could start, too.
            report: gets the tasks that are missing, now and then.

        Raises:
            TfdistError: a peer has given up.
        """
        reported: list[str] = []
        status_at = time.monotonic()
        while not stop.is_set():
            for key, _ in self._selector.select(TICK_S):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
            if self._failed:
                raise TfdistError(given_up(self._failed), ExitCode.START_TIMEOUT)
            missing = self.missing
            if not missing and ready():
                self._tell(go=True)
                self._wait_until_left()
                return True
            due = time.monotonic() >= status_at
            if due or missing != reported:
                report(missing)
                reported = missing
            if due:  # not at each change: it would be a message for each pair of tasks
                self._tell(missing=missing)
                status_at = time.monotonic() + STATUS_S
        return False

    def fail(self, reason: str, task: str) -> None:
        """Tell all peers that nothing starts, and why `task` or, before it, one of them has given up."""
        self._tell(**(self._failed or {"failed": reason, "by": task}))

    def close(self) -> None:
        """Close the port and all connections."""
        for peer in self._peers:
            self._drop(peer)
        self._selector.close()
        self._server.close()

    @property
    def _peers(self) -> list[_Peer]:
        return [key.data for key in self._selector.get_map().values() if key.data is not None]

    def _accept(self) -> None:
        with suppress(OSError):  # it has left already
            connection, _ = self._server.accept()
            connection.settimeout(SEND_S)
            self._selector.register(connection, selectors.EVENT_READ, _Peer(connection))

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(RECEIVE)
            messages = peer.lines.feed(data)
        except (OSError, ValueError):
            data, messages = b"", []
        if not data:
            self._drop(peer)
        for message in messages:
            if peer.task and "failed" in message:
                self._failed = message
            else:
                self._greet(peer, str(message.get("task")), str(message.get("token")))

    def _greet(self, peer: _Peer, task: str, token: str) -> None:
        if token != self._token or task not in self._expected:
            self._send(peer, refused=self._token)
            self._drop(peer)
            return
        for other in [other for other in self._peers if other.task == task and other is not peer]:
            self._drop(other)  # it was restarted
        peer.task = task
        self._send(peer, missing=self.missing)

    def _tell(self, **message: object) -> None:
        for peer in self._peers:
            if peer.task:
                self._send(peer, **message)

    def _send(self, peer: _Peer, **message: object) -> None:
        try:
            send(peer.connection, message)
        except OSError:
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(peer.connection)
        peer.connection.close()

    def _wait_until_left(self) -> None:
        """A connection that this side closes first would occupy the port for a minute (TIME_WAIT)."""
        deadline = time.monotonic() + LEAVE_S
        self._selector.unregister(self._server)
        while any(peer.task for peer in self._peers) and time.monotonic() < deadline:
            for key, _ in self._selector.select(TICK_S):
                self._read(key.data)
