"""A launch that runs: its events and lines as they come, each with the time at which it was read."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil

from lab.faults.sandbox import PROGRAMS, Sandbox

POLL_S = 0.01
TEMPLATE = "template for tasks like"
"""In the command line of a template."""


class TooLateError(Exception):
    """What a scenario waits for has not happened in time."""


@dataclass(frozen=True)
class Seen:
    """A line of events.jsonl."""

    at: float
    """Monotonic time at which this process read it: clocks of other processes may be wrong on purpose."""
    kind: str
    values: dict[str, Any]

    @property
    def event(self) -> str:
        """The name of a task's event; empty for other messages."""
        return str(self.values.get("event", {}).get("event", "")) if self.kind == "Event" else ""

    @property
    def task(self) -> str:
        """The task it is about."""
        return str(self.values.get("task", ""))

    @property
    def attempt(self) -> int:
        """The task's attempt."""
        return int(self.values.get("attempt", 0))

    @property
    def step(self) -> int:
        """The step of a `step`, `checkpoint` or `resumed` event."""
        return int(self.values["event"]["step"])


@dataclass
class Live:
    """A launcher, its run folder, and what it has said so far."""

    box: Sandbox
    process: "subprocess.Popen[bytes]"
    started_at: float
    """Monotonic."""
    lines: list[tuple[float, str]] = field(default_factory=list)
    """Its output, with monotonic times."""
    seen: list[Seen] = field(default_factory=list)
    injected_at: float | None = None
    """Monotonic time of the fault."""
    good_step: int | None = None
    """The step that the next attempt must resume from, if the fault decides it."""
    _position: int = 0

    @property
    def run_dir(self) -> Path | None:
        """The folder of the run; None before it exists."""
        return next(iter(sorted(self.box.runs.glob("*Z-*"))), None)

    @property
    def text(self) -> str:
        """All of its output."""
        return "".join(line for _, line in list(self.lines))

    def update(self) -> None:
        """Read the new events."""
        folder = self.run_dir
        if folder is None or not (folder / "events.jsonl").exists():
            return
        with (folder / "events.jsonl").open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError):  # a full disk cuts lines
                values = json.loads(line)
                self.seen.append(Seen(time.monotonic(), values.pop("kind"), values))

    def wait(self, condition: Callable[["Live"], bool], timeout_s: float, what: str) -> None:
        """Wait until a condition holds.

        Raises:
            TooLateError: it does not hold in time, or the launcher has ended.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            ended = self.process.poll() is not None
            self.update()
            if condition(self):
                return
            if ended or time.monotonic() > deadline:
                raise TooLateError(f"{what}: {'the launcher ended' if ended else f'not within {timeout_s:g} s'}")
            time.sleep(POLL_S)

    def end(self, timeout_s: float) -> int:
        """Wait for the launcher's end; its exit code.

        Raises:
            TooLateError: it still runs.
        """
        self.wait(lambda live: live.process.poll() is not None, timeout_s, "the launcher's end")
        self.update()
        return self.process.returncode

    def pid(self, task: str) -> int:
        """The process of a task's last attempt.

        Raises:
            TooLateError: it has not started.
        """
        for seen in reversed(self.seen):
            if seen.kind == "Started" and seen.task == task:
                return int(seen.values["pid"])
        raise TooLateError(f"{task} has not started")

    def agent(self, task: str) -> int:
        """The process that started this task."""
        return int(Path(f"/proc/{self.pid(task)}/stat").read_text().rpartition(")")[2].split()[1])

    def templates(self) -> list[int]:
        """The processes from which tasks are forked."""
        found = []
        with suppress(psutil.NoSuchProcess):  # the launcher has ended
            for child in psutil.Process(self.process.pid).children():
                with suppress(psutil.Error):  # a child of another kind, that ends meanwhile
                    if TEMPLATE in child.cmdline():
                        found.append(child.pid)
        return found

    def template(self) -> int:
        """The process from which tasks are forked.

        Raises:
            TooLateError: there is none.
        """
        for pid in self.templates():
            return pid
        raise TooLateError("no template runs: it was late or has failed, and tasks are executed without it")

    def first(self, event: str, attempt: int = 0) -> Seen | None:
        """The first event of this name in an attempt, of any task."""
        return next((seen for seen in self.seen if seen.event == event and seen.attempt == attempt), None)

    def last_step(self) -> int:
        """The highest step that any task has reported."""
        return max((seen.step for seen in self.seen if seen.event == "step"), default=0)

    def outcome(self) -> dict[str, Any]:
        """outcome.json; empty if it is missing."""
        folder = self.run_dir
        try:
            return dict(json.loads((folder / "outcome.json").read_text())) if folder else {}
        except (OSError, ValueError):
            return {}

    def ranks(self) -> list[dict[str, Any]]:
        """The figures of the built-in training's tasks; empty if it has none."""
        folder = self.run_dir
        try:
            return list(json.loads((folder / "records.jsonl").read_text())["ranks"]) if folder else []
        except FileNotFoundError:
            return []


@contextmanager
def launched(box: Sandbox, arguments: list[str], read_output: bool = True, caller: str = "") -> Iterator[Live]:
    """Start `tfdist launch`, or the program that calls `tfdist.run`; at the end it is killed if it still runs.

    Args:
        box: where.
        arguments: of the command.
        read_output: read its stdout and stderr; otherwise they are a pipe that nobody reads.
        caller: as `Job.caller`.
    """
    reading, writing = os.pipe()
    cgroup = box.cgroup
    command = (str(PROGRAMS / caller),) if caller else ("-m", "tfdist.cli", "launch")
    process = subprocess.Popen(
        box.python(*command, "--runs-dir", str(box.runs), *arguments),
        cwd=box.folder,
        env=box.environment(),
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=writing,
        preexec_fn=None if cgroup is None else partial(_enter, cgroup),
    )
    os.close(writing)
    live = Live(box, process, time.monotonic())
    stream = os.fdopen(reading, "rb")
    reader = threading.Thread(target=_read, args=(stream, live), daemon=True)
    try:
        if read_output:
            reader.start()
        yield live
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if read_output:
            reader.join(timeout=1)  # processes that are left may keep it open
        else:
            stream.close()


def _enter(cgroup: Path) -> None:
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))


def _read(stream: IO[bytes], live: Live) -> None:
    with stream:
        for line in stream:
            live.lines.append((time.monotonic(), line.decode(errors="replace")))
