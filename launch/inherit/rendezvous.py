"""The start barrier of tasks that another launcher starts: none starts before all are there and know all names.

TensorFlow would wait for a missing peer in silence, for up to an hour, or fail because a name is not in DNS yet. The
leader gathers the others on its own TensorFlow port before TensorFlow uses it.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from tfdist.launch.agent_program.system import reserve
from tfdist.launch.agents.inbox import Interrupted, interruptions
from tfdist.launch.errors import SIGNALS, ExitCode, TfdistError
from tfdist.launch.inherit.leader import Gathering, Rendezvous
from tfdist.launch.inherit.peer import NameSearch, Peer
from tfdist.launch.text import shortened

REPORT_S = 5.0
"""Seconds between two lines about what is missing."""
JOIN_S = 3.0
"""Time for the thread that meets the peers to end."""


_News = SimpleQueue[str | TfdistError | Interrupted | None]
"""What is missing, why nothing starts, a signal, and None: all are there."""


def meet(rendezvous: Rendezvous, timeout_s: float, report: Callable[[str], None]) -> None:
    """Return when all tasks of the cluster are there; at once if there is nothing to wait for.

    Args:
        rendezvous: the tasks.
        timeout_s: seconds from now.
        report: gets a line about what is missing every few seconds.

    Raises:
        TfdistError: the port of this task is in use (exit code 2), tasks are missing after `timeout_s` (75), or a
            signal came (128 and its number).
    """
    if not rendezvous.needed:
        return
    news: _News = SimpleQueue()
    stop = threading.Event()
    try:
        reserved = reserve(rendezvous.port)
    except OSError as error:
        raise TfdistError(
            f"port {rendezvous.port} of {rendezvous.task.name} cannot be used ({error.strerror}): end the process that "
            "uses it, or choose another port"
        ) from None
    with interruptions(news.put), closing(reserved):
        meeting = _Meeting(rendezvous, stop, news.put)
        thread = threading.Thread(target=meeting.run, name="rendezvous", daemon=True)
        thread.start()
        try:
            _wait(news, timeout_s, report)
        except TfdistError as error:
            meeting.failure = str(error) if error.exit_code < SIGNALS else ""
            raise
        finally:
            stop.set()
            thread.join(JOIN_S)


def _wait(news: _News, timeout_s: float, report: Callable[[str], None]) -> None:
    missing, now = "the other tasks", time.monotonic()
    deadline, report_at = now + timeout_s, now + REPORT_S
    while True:
        try:
            item = news.get(timeout=max(0.0, min(deadline, report_at) - time.monotonic()))
        except Empty:
            if time.monotonic() >= deadline:
                raise TfdistError(
                    f"not all tasks are there within --start-timeout {timeout_s:g} s, missing: {missing}; look at "
                    "their logs, or give them more time",
                    ExitCode.START_TIMEOUT,
                ) from None
            report(f"waiting for {missing}")
            report_at = time.monotonic() + REPORT_S
            continue
        match item:
            case None:
                return
            case Interrupted(number):
                raise TfdistError("interrupted before any task was started", SIGNALS + number)
            case TfdistError():
                raise item
            case str():
                missing = item


@dataclass
class _Meeting:
    """What the thread does."""

    rendezvous: Rendezvous
    stop: threading.Event
    put: Callable[[str | TfdistError | None], None]
    failure: str = ""
    """Why this task has given up, for the peers; empty: another process may take its place."""

    def run(self) -> None:
        """Meet the peers, and put the result."""
        rendezvous = self.rendezvous
        try:
            if self._lead() if rendezvous.task == rendezvous.leader else self._follow():
                self.put(None)
        except TfdistError as error:
            self.put(error)

    def _lead(self) -> bool:
        names = NameSearch(self.rendezvous.hosts)
        threading.Thread(target=names.run, args=(self.stop,), name="names", daemon=True).start()

        def report(missing: Sequence[str]) -> None:
            if missing or names.missing:
                self.put(shortened(missing) or _names(names.missing))

        try:
            gathering = Gathering(self.rendezvous)
        except OSError as error:
            task, port = self.rendezvous.task.name, self.rendezvous.port
            raise TfdistError(f"port {port} of {task} cannot be used ({error.strerror})") from None
        with closing(gathering):
            try:
                return gathering.run(self.stop, lambda: not names.missing, report)
            except TfdistError as error:
                self.failure = str(error)
                raise
            finally:
                if self.failure:
                    gathering.fail(self.failure)

    def _follow(self) -> bool:
        names = NameSearch(self.rendezvous.hosts)
        if not names.run(self.stop, lambda missing: self.put(_names(missing))):
            return False
        return Peer(self.rendezvous, self.put, self.stop, lambda: self.failure).run()


def _names(missing: Mapping[str, str]) -> str:
    """`the name of worker-1 (h2)`."""
    listed = shortened(f"{task} ({host})" for task, host in missing.items())
    return f"the {'name' if len(missing) == 1 else 'names'} of {listed} in DNS"
