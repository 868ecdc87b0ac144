"""The start barrier of tasks that another launcher starts: none starts before all have reported and know all names.

TensorFlow would wait for a missing peer in silence, for up to an hour, or fail because a name is not in DNS yet. The
leader gathers the others on its own TensorFlow port before TensorFlow uses it. A peer reports to it and waits for its
`go`, once the names of all others are known: a cluster's DNS may learn them after the tasks have started.
"""

import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Thread

from tfdist.launch.agent_program.json_lines import LineReader, to_line
from tfdist.launch.agent_program.probe import connection_failure
from tfdist.launch.agent_program.system import reserve
from tfdist.launch.agents.inbox import Interrupted, interruptions
from tfdist.launch.errors import SIGNALS, ExitCode, TfdistError
from tfdist.launch.inherit.leader import (
    LONGEST,
    RECEIVE,
    BarrierMessage,
    Gathering,
    Rendezvous,
    failure,
    given_up,
    parse,
)
from tfdist.launch.inherit.table import split
from tfdist.launch.redact import safe_text
from tfdist.launch.text import one_line, shortened
from tfdist.launch.threads import start

REPORT_S = 5.0
"""Seconds between two lines about what is missing."""
RETRY_S = 0.5
"""Pause between two look-ups of names, and between two connections to the leader."""
DIAL_S = 2.0
"""Time limit of a connection to the leader."""
TICK_S = 0.5
"""Interval of the checks whether to give up."""
TELL_S = 10.0
"""Time in which a task that cannot start tells the others why."""
SILENCE_S = 10.0
"""Time without a message from the leader, which sends one every 2 s, until it is connected again."""


def is_known(host: str) -> bool:
    """Whether the name or address of a host can be resolved on this machine."""
    with suppress(OSError, UnicodeError):  # UnicodeError: not a valid DNS name
        socket.getaddrinfo(host, None)
        return True
    return False


class NameSearch(Thread):
    """Looks for the hosts of tasks until all are known, in a thread of its own: DNS may take long to answer."""

    def __init__(self, hosts: Mapping[str, str], stop: Event, is_known: Callable[[str], bool] = is_known) -> None:
        """Look for these hosts, by the name of the task, until `stop` is set."""
        super().__init__(name="names", daemon=True)
        self.missing = hosts
        """The hosts that are not known yet, by task."""
        self._stop_search, self._is_known = stop, is_known

    def run(self) -> None:
        """Look until all are known or `stop` is set."""
        while self.missing and not self._stop_search.is_set():
            self.missing = {task: host for task, host in self.missing.items() if not self._is_known(host)}
            if self.missing:
                self._stop_search.wait(RETRY_S)


def meet(
    rendezvous: Rendezvous,
    timeout_s: float,
    report: Callable[[str], None],
    problem: TfdistError | None = None,
    earlier: Callable[[], Interrupted | None] = lambda: None,
) -> None:
    """Return when all tasks of the cluster have reported; at once if there is nothing to wait for.

    Args:
        rendezvous: the tasks.
        timeout_s: seconds from now.
        report: gets a line about what is missing every few seconds.
        problem: why this task cannot start. The others are told, if they come within `TELL_S`; then it is raised.
        earlier: a signal that has come before, and counts.

    Raises:
        TfdistError: the port of this task is in use (exit code 2), tasks are missing after `timeout_s` (75), a signal
            came (128 and its number), or `problem`.
    """
    if not rendezvous.peers or rendezvous.task.role == "evaluator":  # nothing connects to it, and it to nothing
        if problem is not None:
            raise problem
        return
    wait = _Wait(timeout_s, report, problem, earlier)
    stop = Event()
    leads = rendezvous.task == rendezvous.leader
    names = NameSearch({name: split(address)[0] for name, address in rendezvous.peers.items()}, stop)
    with ExitStack() as stack:
        try:
            stack.enter_context(closing(reserve(rendezvous.port)))
            gathering = stack.enter_context(closing(Gathering(rendezvous))) if leads else None
        except OSError as error:
            raise TfdistError(
                f"port {rendezvous.port} of {rendezvous.task.name} cannot be used ({error.strerror}): end the process "
                "that uses it, or choose another port"
            ) from None
        stack.enter_context(interruptions(wait.signals.put))
        stack.callback(stop.set)
        start(names)
        if gathering is None:
            _follow(rendezvous, names, wait)
        else:
            _lead(gathering, names, wait)


@dataclass
class _Wait:
    """The wait for the other tasks: what is missing, and when it ends without them."""

    timeout_s: float
    report: Callable[[str], None]
    problem: TfdistError | None = None
    earlier: Callable[[], Interrupted | None] = lambda: None
    signals: SimpleQueue[Interrupted] = field(default_factory=SimpleQueue)
    missing: str = "the other tasks"
    started_at: float = field(default_factory=time.monotonic)
    reported_at: float = field(default_factory=time.monotonic)

    def take_signal(self) -> Interrupted | None:
        """The next signal that has come; None: none has."""
        if (earlier := self.earlier()) is not None:
            return earlier
        return None if self.signals.empty() else self.signals.get()

    @property
    def left_s(self) -> float:
        """Seconds until the time is over."""
        return self.started_at + self.timeout_s - time.monotonic()

    def check(self, missing: str, *, heard: bool = False) -> None:
        """Note what is missing (empty: unchanged), and report it every `REPORT_S`.

        Args:
            missing: a text.
            heard: whoever should hear of a problem hears it now.

        Raises:
            TfdistError: a signal came, the time is over, or this task cannot start.
        """
        self.missing = missing or self.missing
        now = time.monotonic()
        if (interrupted := self.take_signal()) is not None:
            raise TfdistError("interrupted before any task was started", SIGNALS + interrupted.signal)
        if self.problem is not None and (heard or now - self.started_at >= TELL_S):
            raise self.problem
        if self.left_s <= 0:
            raise TfdistError(
                f"still missing after --start-timeout {self.timeout_s:g} s: {self.missing}; look at the logs there, or "
                "use a longer --start-timeout",
                ExitCode.START_TIMEOUT,
            )
        if now - self.reported_at >= REPORT_S:
            self.report(f"waiting for {self.missing}")
            self.reported_at = now


def _lead(gathering: Gathering, names: NameSearch, wait: _Wait) -> None:
    """Gather the peers. They are told why nothing starts, unless a signal came: another process may take the place.

    Those that come a little later are told, too, but not after the time is over.
    """
    try:
        gathering.run(
            lambda: not names.missing and wait.problem is None,
            lambda tasks: wait.check(shortened(tasks) or _missing(names), heard=not tasks),
        )
    except TfdistError as error:
        if error.exit_code < SIGNALS:
            gathering.fail(str(error), min(TELL_S, wait.left_s), lambda: wait.take_signal() is not None)
        raise


def _follow(rendezvous: Rendezvous, names: NameSearch, wait: _Wait) -> None:
    """Wait for all names, then for `go` from the leader, over as many connections as it takes."""
    while names.missing:
        wait.check(_missing(names))
        names.join(TICK_S)
    leader = rendezvous.leader.name
    host, port = split(rendezvous.peers[leader])
    while True:
        try:
            with socket.create_connection((host, port), timeout=DIAL_S) as connection:
                if _wait_at_leader(connection, rendezvous, wait):
                    return
        except (OSError, ValueError) as error:
            wait.check(f"{leader} at {host}:{port} ({connection_failure(error)})")
        time.sleep(RETRY_S)


def _wait_at_leader(connection: socket.socket, rendezvous: Rendezvous, wait: _Wait) -> bool:
    """Report, and read the leader's messages until `go` (returns True), or until it refuses this task (False).

    A leader is told why this task gives up, unless a signal came: another process may take its place.
    """
    task, key, leader = rendezvous.task.name, rendezvous.key, rendezvous.leader.name
    nonce = secrets.token_hex(16)
    is_greeted = False
    is_leader = False
    try:
        for message in _messages(connection, wait):
            is_leader = is_leader or key.proves(message, nonce, leader)
            if "nonce" in message and not is_greeted:
                problem = {} if wait.problem is None else failure(str(wait.problem), task)
                hello = {"task": task, "nonce": nonce, "proof": key.proof(message["nonce"], task), **problem}
                connection.sendall(to_line(hello))
                is_greeted = True
            elif "refused" in message:
                wait.check(f"{leader} of this attempt ({one_line(safe_text(message['refused']))})")
                break
            elif not is_leader:
                raise ValueError("not a message of the start barrier")
            elif message.get("go"):
                return True
            elif "failed" in message:
                raise TfdistError(given_up(message), ExitCode.START_TIMEOUT)
            else:
                wait.check(one_line(safe_text(message.get("missing", ""))) or leader, heard=True)
    except TfdistError as error:
        if error.exit_code < SIGNALS:
            with suppress(OSError):
                connection.sendall(to_line(failure(str(error), task)))
        raise
    return False


def _messages(connection: socket.socket, wait: _Wait) -> Iterator[BarrierMessage]:
    """The messages of whoever answers.

    Raises:
        OSError: the connection has ended, or nothing came for long.
        ValueError: something else answers.
    """
    reader = LineReader(LONGEST)
    heard_at = time.monotonic()
    connection.settimeout(TICK_S)
    while True:
        wait.check("")
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


def _missing(names: NameSearch) -> str:
    """`the name of worker-1 (h2) in DNS`; empty if all names are known."""
    missing = [f"{task} ({host})" for task, host in names.missing.items()]
    if not missing:
        return ""
    return f"the {'name' if len(missing) == 1 else 'names'} of {shortened(missing)} in DNS"
