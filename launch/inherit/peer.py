"""A peer's side of the start barrier: it reports to the leader and waits for its word.

The names of peers are looked up until all are known: a cluster's DNS may learn them after the tasks have started.
"""

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.inherit.leader import LONGEST, RECEIVE, BarrierMessage, Rendezvous, given_up, parse
from tfdist.launch.inherit.table import split
from tfdist.launch.json_lines import LineReader, to_line
from tfdist.launch.probe import connection_failure
from tfdist.launch.redact import safe_text
from tfdist.launch.text import shortened

RETRY_S = 0.5


def is_known(host: str) -> bool:
    """Whether the name or address of a host can be resolved on this machine."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):  # UnicodeError: not a valid DNS name
        return False
    return True


class NameSearch:
    """Looks for the hosts of tasks, in one thread; others may ask what is missing."""

    def __init__(self, hosts: Mapping[str, str], is_known: Callable[[str], bool] = is_known) -> None:
        """Look for these hosts, by the name of the task."""
        self._missing, self._is_known = dict(hosts), is_known

    @property
    def missing(self) -> Mapping[str, str]:
        """The hosts that are not known yet, by task."""
        return self._missing

    def run(self, stop: threading.Event, report: Callable[[Mapping[str, str]], None] = lambda _: None) -> bool:
        """Look until all are known or `stop` is set; returns whether all are known. `report` gets the missing ones."""
        while not stop.is_set():
            self._missing = {task: host for task, host in self._missing.items() if not self._is_known(host)}
            if not self._missing:
                return True
            report(self._missing)
            stop.wait(RETRY_S)
        return False


DIAL_S = 4.0
"""Time limit of a connection to the leader."""
TICK_S = 0.5
"""Seconds between two looks at whether to stop."""
SILENCE_S = 10.0
"""Without a message from the leader, which sends one every 2 s, until it is connected again."""


@dataclass
class Peer:
    """A task that waits at the leader. Used by one thread."""

    rendezvous: Rendezvous
    say: Callable[[str], None]
    """Gets what is missing, now and then."""
    stop: threading.Event
    """Ends the wait."""
    failure: Callable[[], str] = str
    """Why the wait is ended, for the leader; empty: another process may take the place of this one."""

    def run(self) -> bool:
        """Wait until all tasks are there, connecting again and again. Returns False if `stop` was set before.

        Raises:
            TfdistError: the leader or another peer has given up.
        """
        leader = self.rendezvous.leader.name
        host, port = split(self.rendezvous.peers[leader])
        while not self.stop.is_set():
            try:
                with socket.create_connection((host, port), timeout=DIAL_S) as connection:
                    if self._wait(connection):
                        return True
            except (OSError, ValueError) as error:
                self.say(f"{leader} at {host}:{port} ({connection_failure(error)})")
            self.stop.wait(RETRY_S)
        return False

    def _wait(self, connection: socket.socket) -> bool:
        """Report, and read the leader's messages; returns whether the last one was `go`."""
        task, key, leader = self.rendezvous.task.name, self.rendezvous.key, self.rendezvous.leader.name
        nonce, is_leader = secrets.token_hex(16), False
        for message in _messages(connection, self.stop):
            is_leader = is_leader or key.proves(message, nonce, leader)
            if "nonce" in message:
                proof, has_secret = key.proof(message["nonce"], task), bool(key.secret)
                hello = {"task": task, "nonce": nonce, "proof": proof, "has_secret": has_secret}
                connection.sendall(to_line(hello))
            elif "refused" in message:
                self.say(f"{leader} of this attempt ({safe_text(message['refused'])})")
                return False
            elif not is_leader:
                raise ValueError("not a message of the start barrier")
            elif message.get("go"):
                return True
            elif "failed" in message:
                raise TfdistError(given_up(message), ExitCode.START_TIMEOUT)
            elif "missing" in message:
                self.say(shortened(map(safe_text, message["missing"])) or leader)
        reason = self.failure()
        if reason:
            connection.sendall(to_line({"failed": reason, "by": task}))
        return False


def _messages(connection: socket.socket, stop: threading.Event) -> Iterator[BarrierMessage]:
    """The messages until `stop` is set.

    Raises:
        OSError: the connection has ended, or nothing came for long.
        ValueError: something else answers.
    """
    reader, heard_at = LineReader(LONGEST), time.monotonic()
    connection.settimeout(TICK_S)
    while not stop.is_set():
        try:
            data = connection.recv(RECEIVE)
        except TimeoutError:
            if time.monotonic() - heard_at > SILENCE_S:
                raise
            continue
        if not data:
            raise ConnectionResetError("closed")
        heard_at = time.monotonic()
        yield from map(parse, reader.feed(data))
