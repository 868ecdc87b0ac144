"""The current step of a command, on stderr, for commands that take longer than expected."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._quiet:
            self._timer.cancel()
            self._timer.join()
        if self._visible and self._out.isatty():
            self._write("\r\x1b[K")

    def show(self, step: str) -> None:
        """Make `step` the current one."""
        with self._lock:
            self._step = step
            if self._visible:
                self._print()

    def update(self, step: str) -> None:
        """Change the text of the current step. Where lines are not overwritten, print it only every UPDATE_S."""
        with self._lock:
            changed, self._step = step != self._step, step
            overdue = time.monotonic() >= self._printed_at + UPDATE_S
            if self._visible and changed and (overdue or self._out.isatty()):
                self._print()

    def _start(self) -> None:
        with self._lock:
            self._visible = True
            if self._step:
                self._print()

    def _print(self) -> None:
        line, self._printed_at = f"{self._step} ...", time.monotonic()
        if self._out.isatty():
            self._write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
        else:
            self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


@contextmanager
def connected(selection: HostSelection, policy: Policy, *, quiet: bool = False) -> Iterator[Fleet | None]:
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

    def text(missing: Sequence[Host]) -> str:
        names = f"connecting to {shortened(host.name for host in missing)}"
        return (
            names if len(missing) == len(hosts) else f"{names}; {len(hosts) - len(missing)} of {len(hosts)} are ready"
        )

    def update(missing: Sequence[Host]) -> None:
        if missing:
            steps.update(text(missing))

    steps.show(text(hosts))
    return update
