"""A launcher that goes into the background: forked before any thread exists, detached once all tasks are started."""

import json
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType

from tfdist.launch.agents.inbox import INTERRUPTIONS, Message, Restarting
from tfdist.launch.agents.messages import Started
from tfdist.launch.runs.rundir import RunDir, open_folder


@dataclass(frozen=True)
class Foreground:
    """The process that the user waits for, until the launcher in the background has started all tasks."""

    pid: int
    """Process id of the launcher."""
    pipe: int

    def wait(self) -> tuple[str, int] | int:
        """Folder and process id of the detached run, or the exit code of a launcher that ended before; signals go to
        the launcher meanwhile."""
        with os.fdopen(self.pipe, "rb") as pipe:
            data = pipe.read()
        if data:
            run_dir, pid = json.loads(data)
            return run_dir, pid
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@dataclass
class Background:
    """The launcher, in a session of its own: a closed terminal sends it no signal."""

    pipe: int
    run_dir: RunDir | None = None
    waiting: set[str] = field(default_factory=set)
    """Tasks that have not been started."""

    def expect(self, tasks: Iterable[str], run_dir: RunDir) -> None:
        """Detach once these tasks are started."""
        self.waiting = set(tasks)
        self.run_dir = run_dir

    def handle(self, message: Message) -> None:
        """Detach when the last task has been started."""
        if isinstance(message, Restarting) and message.whole:
            self.waiting = set(message.tasks)
        if not isinstance(message, Started) or self.run_dir is None:
            return
        self.waiting.discard(message.task)
        if self.waiting:
            return
        run_dir, self.run_dir = self.run_dir, None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with suppress(OSError):  # no descriptor is left
            for descriptor in (0, 1, 2):
                _redirect(descriptor, os.devnull, os.O_RDWR)
            folder = open_folder(run_dir.path)
            for descriptor in (1, 2):
                _redirect(descriptor, f"/proc/self/fd/{folder}/{run_dir.launcher_log.name}", flags)
            os.close(folder)
        with suppress(OSError):  # the process in the foreground was killed
            os.write(self.pipe, json.dumps([str(run_dir.path), os.getpid()]).encode())
        os.close(self.pipe)


def fork_launcher() -> Foreground | Background:
    """Continue in two processes: the caller's, which gets `Foreground`, and a launcher, which gets `Background`."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    read, write = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
    try:
        pid = os.fork()
        if pid == 0:
            os.close(read)
            os.setsid()
            return Background(write)

        def forward(number: int, _frame: FrameType | None) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in INTERRUPTIONS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, forward)
        os.close(write)
        return Foreground(pid, read)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTIONS)


def _redirect(descriptor: int, path: str, flags: int) -> None:
    target = os.open(path, flags, 0o600)
    os.dup2(target, descriptor)
    os.close(target)
