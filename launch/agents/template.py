"""Templates on this machine: processes that have imported TensorFlow, and fork agents (`template_server.py`)."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from tfdist.launch.agent_program.gpus import with_cusolver
from tfdist.launch.agent_program.optional import HAS_CTYPES
from tfdist.launch.agent_program.processes import INHERITED, descriptor_variable
from tfdist.launch.agent_program.template import (
    AGENT_VARIABLE,
    ANY_AGENT,
    SERVE,
    read_on_import,
    without_working_folder,
)
from tfdist.launch.job import Job

VARIABLE = "TFDIST_TEMPLATE"
"""Its value 0 lets every task be executed."""
_LABEL = "template for tasks like"
"""An argument before the module, that makes the command longer than that of a task, which replaces it in /proc."""


class ForkedAgent:
    """An agent that a template forks, with what `Channel` uses of `subprocess.Popen`."""

    def __init__(self, requests: socket.socket, drop: Callable[[], None]) -> None:
        """Ask a template for it, without waiting; `drop` ends the template, and with it what it has not forked yet.

        Raises:
            OSError: the template has ended, or there are too many open files.
        """
        theirs, ours = [], []
        try:
            for is_input in (True, False, False, False):
                reader, writer = os.pipe()
                theirs.append(reader if is_input else writer)
                ours.append(writer if is_input else reader)
            socket.send_fds(requests, [b"1"], theirs)
        except OSError:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.stdin = os.fdopen(ours[0], "wb")
        self.stdout = os.fdopen(ours[1], "rb")
        self.stderr = os.fdopen(ours[2], "rb")
        self._alive = os.fdopen(ours[3], "rb", buffering=0)
        self._pid, self._drop = b"", drop  # its digits, once the agent runs
        os.set_blocking(ours[3], False)

    def exited(self) -> bool:
        """Whether the agent and its parent have ended, or never run because the template has ended."""
        while not self._alive.closed and (data := self._alive.read(64)) is not None:  # None: nothing to read yet
            self._pid += data
            if not data:
                self._alive.close()
        return self._alive.closed

    def signal(self, number: int) -> None:
        """Send a signal to the agent and its parent, if they run; if they do not yet, they never will."""
        if not self.exited() and not self._pid:
            self._drop()
        elif not self.exited():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(self._pid), number)

    def reap(self) -> None:
        """Do nothing: its parent, the template, reaps it."""


class StartedAgent(subprocess.Popen[bytes]):
    """An agent, or the ssh that carries it, which this process has started."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def __init__(self, argv: Sequence[str]) -> None:
        """Start it, out of reach of Ctrl-C at the terminal, which goes to the launcher only."""
        pipe = subprocess.PIPE
        super().__init__(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)

    def exited(self) -> bool:
        """Whether it has ended. It is not reaped, so that its number cannot become that of another process group."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal(self, number: int) -> None:
        """Send a signal to its group, since ssh may have started a ProxyCommand that outlives it.

        Processes of another user (sudo) cannot be signalled; they end with their stream.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def reap(self) -> None:
        """Take its exit code, if it has one within a second."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout=1.0)


class Template:
    """A process that has imported what the tasks of some jobs import."""

    def __init__(self, module: str, variables: Mapping[str, str]) -> None:
        """Start it; it imports while the caller continues.

        Args:
            module: its `preload` imports.
            variables: of the tasks, besides those of this process.

        Raises:
            OSError: it cannot be started.
        """
        # with more OMP threads, numpy would start some that a fork does not copy
        ours = {**os.environ, **variables, AGENT_VARIABLE: ANY_AGENT, "OMP_NUM_THREADS": "1"}
        ours = with_cusolver(without_working_folder(ours))
        for name in ("TFDIST_TASK", *map(descriptor_variable, INHERITED)):  # it is no task
            ours.pop(name, None)
        after = {name: os.environ.get(name) for name in {*os.environ, *ours} if os.environ.get(name) != ours.get(name)}
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._requests.send(json.dumps([module, after]).encode())
            command = [sys.executable, "-u", "-c", SERVE, _LABEL, module]
            null = subprocess.DEVNULL
            self._process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=null, stderr=null, env=ours, start_new_session=True
            )

    def fork_agent(self) -> ForkedAgent | None:
        """An agent on this machine, which starts once the import is complete; None if the template has ended."""
        with suppress(OSError):
            return ForkedAgent(self._requests, self.close)
        return None

    def close(self) -> None:
        """End the template. Agents that it has not forked yet are lost; it is the parent of the others."""
        self._requests.close()
        self._process.kill()
        self._process.wait()


@dataclass
class Templates:
    """The templates of a launch, or of one incarnation of a bench: one for each set of variables that an import reads.

    For several threads.
    """

    _templates: dict[tuple[tuple[str, str], ...], Template] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, job: Job) -> Template | None:
        """The template for the local tasks of a job; None: its tasks are executed."""
        plan = job.plans[0]
        if not plan.program.preload or not plan.host.local or os.environ.get(VARIABLE) == "0":
            return None
        if not HAS_CTYPES:  # the guard would not find its tasks, as `_show_as` could not name their agent
            return None
        variables = job.environment(plan)
        key = tuple(sorted(read_on_import(variables).items()))
        with self._lock, suppress(OSError):  # too many processes or open files
            if key not in self._templates:
                self._templates[key] = Template(plan.program.preload, variables)
            return self._templates[key]
        return None

    def close(self) -> None:
        """End them. Their agents must have ended."""
        while self._templates:
            self._templates.popitem()[1].close()
