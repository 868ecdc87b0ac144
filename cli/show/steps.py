"""The current step of a command, on stderr, for commands that take longer than expected."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from textwrap import shorten
from typing import TextIO

from tfdist.jobs.host_selection import HostSelection
from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.policy import Policy
from tfdist.launch.text import shortened

PATIENCE_S = 2.0
"""Nothing is printed before."""
UPDATE_S = 5.0
"""Seconds between two updates of a step where lines are not overwritten."""


class Steps:
    """Prints the current step once the context has lasted `patience_s`: on a terminal one line that is overwritten and
    erased at the end, elsewhere one line per step."""

    def __init__(self, out: TextIO, patience_s: float = PATIENCE_S, *, quiet: bool = False) -> None:
        self._out, self._quiet = out, quiet
        self._lock = threading.Lock()
        self._step = ""
        self._visible = False
        self._printed_at = 0.0
        self._timer = threading.Timer(patience_s, self._start)
        self._timer.daemon = True

    def __enter__(self) -> "Steps":
        if not self._quiet:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._quiet:
            self._timer.cancel()
            self._timer.join()
        if self._visible and self._out.isatty():
            self._write("\r\x1b[K")

    def show(self, step: str, every_s: float = 0.0) -> None:
        """Make `step` the current one. Where lines are not overwritten, print it `every_s` after the last one."""
        with self._lock:
            changed, self._step = step != self._step, step
            overdue = self._out.isatty() or time.monotonic() >= self._printed_at + every_s
            if self._visible and changed and overdue:
                self._print()

    def _start(self) -> None:
        with self._lock:
            self._visible = True
            if self._step:
                self._print()

    def _print(self) -> None:
        line, self._printed_at = f"{self._step} ...", time.monotonic()
        if self._out.isatty():
            self._write(f"\r\x1b[K{_cut(line, shutil.get_terminal_size().columns - 1)}")
        else:
            self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _cut(line: str, width: int) -> str:
    """As many whole words as fit in a line."""
    return line if len(line) <= width else shorten(line, width, placeholder=" ...", break_on_hyphens=False)


@contextmanager
def connected(selection: HostSelection, policy: Policy, *, quiet: bool) -> Iterator[Fleet | None]:
    """The hosts' agents, until the context ends; None for only this machine, whose agent starts with the job.

    Raises:
        TfdistError: as `connect`; or the launcher's timeout is set, but there is no other host.
    """
    if not selection.hosts:
        if policy.launcher_timeout_s != Policy().launcher_timeout_s:
            flag = f"--launcher-timeout {policy.launcher_timeout_s:g}"
            raise TfdistError(f"{flag}: has no effect without --hosts or --hostfile; omit it")
        yield None
        return
    with ExitStack() as stack:
        with Steps(sys.stderr, quiet=quiet) as steps:
            progress = connecting(selection.hosts, steps)
            fleet = stack.enter_context(connect(selection.hosts, policy, on_progress=progress))
        yield fleet


def connecting(hosts: Sequence[Host], steps: Steps) -> Callable[[Sequence[Host]], None]:
    """Show that these hosts are being connected; returns what updates that with the hosts that are not ready."""

    def update(missing: Sequence[Host], every_s: float = UPDATE_S) -> None:
        ready = len(hosts) - len(missing)
        if missing:
            names = f"connecting to {shortened(host.name for host in missing)}"
            steps.show(f"{names}; {ready} of {len(hosts)} are ready" if ready else names, every_s)

    update(hosts, 0.0)
    return update
