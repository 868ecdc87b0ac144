"""The leader's side of the start barrier: it gathers the peers on its own TensorFlow port. Also the messages.

Each is a JSON object in a line. The leader sends a `nonce`. A peer answers with its `task`, a `nonce`, and a `proof`
that it knows the secret and the token of the attempt. The leader proves the same, and sends `missing`, which names the
tasks that have not reported yet, every few seconds, and then `go`; or `refused` with the reason. Whoever gives up sends
`failed` with the reason, and `by`, the name of its task; the leader passes that on to all others. One that comes after
`go` ends the leader only: the others have left, and wait for it in TensorFlow. Neither secret nor token is sent.

The other side may be anybody: whatever is wrong with a message costs the connection over which it came.
"""

import hmac
import json
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, TypedDict

from tfdist.launch.agent_program.json_lines import LineReader, to_line
from tfdist.launch.agent_program.probe import listen
from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.environment import BARRIER_SECRET
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.redact import safe_text
from tfdist.launch.text import one_line, shortened
from tfdist.launch.typed_json import MaxLength, from_json, parse_json

LONGEST = 1 << 16
"""Bytes of a line."""
RECEIVE = 1 << 16
MAX_TEXT = 1 << 12
"""Characters of a reason."""


class BarrierMessage(TypedDict, total=False):
    """Some of these; the other side may be anybody."""

    nonce: Annotated[str, MaxLength(64)]
    task: Annotated[str, MaxLength(64)]
    proof: Annotated[str, MaxLength(64)]
    """SHA-256 in hexadecimal digits."""
    refused: Annotated[str, MaxLength(MAX_TEXT)]
    missing: Annotated[str, MaxLength(MAX_TEXT)]
    go: bool
    failed: Annotated[str, MaxLength(MAX_TEXT)]
    by: Annotated[str, MaxLength(64)]


@dataclass(frozen=True)
class Key:
    """What the tasks of one attempt have in common."""

    token: str = ""
    """Number of the attempt; not secret."""
    secret: str = ""
    """Secret of the job; empty: the token alone admits a task."""

    def proof(self, nonce: str, task: str) -> str:
        """A proof by `task` that it has this key, for whoever chose the nonce (HMAC-SHA256, RFC 2104)."""
        text = json.dumps([nonce, task, self.token])
        return hmac.new(os.fsencode(self.secret), text.encode(), "sha256").hexdigest()

    def proves(self, message: BarrierMessage, nonce: str, task: str) -> bool:
        """Whether a message has the proof."""
        proof = message.get("proof", "").encode("ascii", "replace").ljust(64)  # no proof has a `?` or a space in it
        return hmac.compare_digest(proof, self.proof(nonce, task).encode("ascii"))


@dataclass(frozen=True)
class Rendezvous:
    """The tasks that start together, as one of them sees it."""

    cluster: Cluster
    task: Task
    key: Key = field(default_factory=Key)
    """The tasks of one attempt have the same: what is left of an earlier one is not met."""

    @property
    def port(self) -> int:
        """The port of this task."""
        return self.cluster.port(self.task) or 0

    @property
    def leader(self) -> Task:
        """The task that the others report to: the chief, else worker 0."""
        return Task("chief", 0) if self.cluster.addresses.get("chief") else Task("worker", 0)

    @cached_property
    def peers(self) -> Mapping[str, str]:
        """The addresses of the other tasks, by name; without evaluators, which nothing connects to."""
        every = self.cluster.addresses.items()
        tasks = {Task(role, index): each for role, addresses in every for index, each in enumerate(addresses)}
        return {task.name: each for task, each in tasks.items() if task != self.task and task.role != "evaluator"}


def parse(line: bytes) -> BarrierMessage:
    """The message in a line.

    Raises:
        ValueError: it is something else.
    """
    return from_json(parse_json(line), BarrierMessage)


def failure(reason: str, task: str) -> BarrierMessage:
    """The message of a task that gives up."""
    return {"failed": reason[:MAX_TEXT], "by": task}


def given_up(message: BarrierMessage) -> str:
    """The sentence of a `failed` message, in one line."""
    return one_line(safe_text(f"{message.get('failed')} (says {message.get('by')})"))


TICK_S = 0.2
"""Poll interval of what other threads change, in seconds."""
STATUS_S = 2.0
"""Seconds between two messages to a peer that waits."""
LEAVE_S = 2.0
"""Time for all peers to close their connections after `go`: TensorFlow binds the port next."""
INTRODUCTION_S = 5.0
"""Time limit of the first message over a connection."""
MOST_STRANGERS = 64
"""Connections over which no first message came; with more, the oldest is closed."""


@dataclass
class _Peer:
    """A connection, and what has come over it."""

    connection: socket.socket
    task: str = ""
    """Empty until its first message."""
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    since: float = field(default_factory=time.monotonic)
    reader: LineReader = field(default_factory=lambda: LineReader(LONGEST))


class Gathering:
    """The connections of the peers that wait. Used by one thread."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        """Listen on the port of the task, on all addresses. It may be bound but not listening elsewhere.

        Raises:
            OSError: the port is in use by another program.
        """
        self._expected = rendezvous.peers.keys()
        self._key = rendezvous.key
        self._task = rendezvous.task.name
        self._failed: BarrierMessage = {}
        """The message of the peer that has given up."""
        self._went = False
        """The peers were told to start."""
        self._refused: dict[str, str] = {}
        """Texts for missing tasks in whose names a peer without the key has connected."""
        self._selector = selectors.DefaultSelector()
        self._server = listen(rendezvous.port)
        self._server.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ)

    @property
    def missing(self) -> list[str]:
        """The tasks that do not wait here."""
        present = {peer.task for peer in self._peers}
        return [task for task in self._expected if task not in present]

    def run(self, ready: Callable[[], bool], check: Callable[[list[str]], None]) -> None:
        """Wait for all peers; then, and once `ready` says so, let them go.

        Args:
            ready: whether this task could start, too.
            check: gets the missing tasks at each poll. What it raises ends the wait.

        Raises:
            TfdistError: a peer has given up, perhaps while it was told to start.
        """
        status_at = time.monotonic()
        while self.missing or not ready():
            self._serve()
            self._check_failed()
            missing = self.missing
            check([self._refused.get(task, task) for task in missing])
            if time.monotonic() >= status_at:  # not at each change: it would be a message for each pair of tasks
                self._tell({"missing": shortened(missing)})
                status_at = time.monotonic() + STATUS_S
        self._tell({"go": True})
        self._went = True
        # Peers leave first: a connection that this side closes first would occupy the port for a minute (TIME_WAIT).
        deadline = time.monotonic() + LEAVE_S
        self._selector.unregister(self._server)
        while any(peer.task for peer in self._peers) and time.monotonic() < deadline:
            for key, _ in self._selector.select(TICK_S):
                self._read(key.data)
        self._check_failed()

    def fail(self, reason: str, seconds: float, until: Callable[[], bool]) -> None:
        """Tell all peers that nothing starts, and why this task or, before it, one of them has given up.

        Args:
            reason: of this task.
            seconds: time in which those that are missing are waited for, to be told, too.
            until: whether to wait no longer.
        """
        message = self._failed or failure(reason, self._task)
        told = set[str]()
        deadline = time.monotonic() + seconds
        while True:
            for peer in [peer for peer in self._peers if peer.task and peer.task not in told]:
                self._send(peer, message)
                told.add(peer.task)
            if (
                self._went
                or told | {message.get("by", "")} >= self._expected
                or time.monotonic() >= deadline
                or until()
            ):
                return
            self._serve()

    def _serve(self) -> None:
        """Take the connections and the messages that have come."""
        for key, _ in self._selector.select(TICK_S):
            if key.data is None:
                self._accept()
            else:
                self._read(key.data)
        for stranger in self._strangers:
            if time.monotonic() - stranger.since > INTRODUCTION_S:
                self._drop(stranger)

    def close(self) -> None:
        """Close the port and all connections."""
        for peer in self._peers:
            self._drop(peer)
        self._selector.close()
        self._server.close()

    @property
    def _peers(self) -> list[_Peer]:
        return [key.data for key in self._selector.get_map().values() if key.data is not None]

    @property
    def _strangers(self) -> list[_Peer]:
        """The connections over which no first message came, the oldest first."""
        return sorted((peer for peer in self._peers if not peer.task), key=lambda peer: peer.since)

    def _check_failed(self) -> None:
        if self._failed:
            raise TfdistError(given_up(self._failed), ExitCode.START_TIMEOUT)

    def _accept(self) -> None:
        strangers = self._strangers
        if len(strangers) >= MOST_STRANGERS:
            self._drop(strangers.pop(0))
        try:
            connection, _ = self._server.accept()
        except OSError:  # it has left already, or there are too many open files: then it would wake us at once
            time.sleep(TICK_S)
            return
        connection.setblocking(False)
        peer = _Peer(connection)
        try:
            self._selector.register(connection, selectors.EVENT_READ, peer)
        except OSError:  # the user's limit of watched files (fs.epoll.max_user_watches)
            connection.close()
            return
        self._send(peer, {"nonce": peer.nonce})

    def _read(self, peer: _Peer) -> None:
        """Handle what a peer has sent; nothing that it sends may end more than its connection."""
        try:
            data = peer.connection.recv(RECEIVE)
            if not data:
                raise ConnectionResetError
            for line in peer.reader.feed(data):
                self._handle(peer, parse(line))
        except BlockingIOError:
            return
        except (OSError, ValueError):
            self._drop(peer)

    def _handle(self, peer: _Peer, message: BarrierMessage) -> None:
        """Handle the first message of a peer, or its last one, if it gives up.

        Raises:
            ValueError: it is neither.
        """
        greeted = bool(peer.task)
        if not greeted:
            self._greet(peer, message)
        if "failed" in message:
            self._failed = self._failed or failure(message["failed"], peer.task)
        elif greeted:
            raise ValueError("not a message of a peer that waits")

    def _greet(self, peer: _Peer, message: BarrierMessage) -> None:
        task = message.get("task", "")
        if task not in self._expected or not self._key.proves(message, peer.nonce, task):
            if task in self._expected:
                self._refused[task] = f"{task} (another TFDIST_ATTEMPT or {BARRIER_SECRET})"
            self._send(peer, {"refused": f"TFDIST_ATTEMPT or {BARRIER_SECRET} is different there"})
            raise ValueError("no task of this attempt")
        for other in [other for other in self._peers if other.task == task and other is not peer]:
            self._drop(other)  # it was restarted
        peer.task = task
        proof = self._key.proof(message.get("nonce", ""), self._task)
        self._send(peer, {"proof": proof, "missing": shortened(self.missing)})

    def _tell(self, message: BarrierMessage) -> None:
        for peer in self._peers:
            if peer.task:
                self._send(peer, message)

    def _send(self, peer: _Peer, message: BarrierMessage) -> None:
        """Send without waiting: a peer that does not read, so that its buffers are full, is dropped."""
        try:
            peer.connection.sendall(to_line(message))
        except OSError:
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(peer.connection)
        peer.connection.close()
