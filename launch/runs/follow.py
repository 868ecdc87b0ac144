"""Follow a run through its folder: logs as they grow, and events as the messages that the launcher received."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import get_args

from tfdist.launch.agent_program.optional import start_of_data
from tfdist.launch.agent_program.text import end_of_characters
from tfdist.launch.agents.inbox import Message
from tfdist.launch.agents.messages import Output, StreamName
from tfdist.launch.json_files import open_regular
from tfdist.launch.runs.launcher import read_launcher
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import read_run, tasks_of
from tfdist.launch.text import plain, replace_surrogates
from tfdist.launch.typed_json import from_json, parse_json, with_texts

POLL_S = 0.25
"""Seconds between two checks whether the files have grown."""
CHUNK = 1 << 20
"""Bytes per read."""
LAUNCHER_S = 5.0
"""Time for a launcher to exit after it has written the outcome."""
STREAMS: tuple[StreamName, ...] = ("stdout", "stderr")
_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in get_args(Message) if kind is not Output}
"""Messages by their `kind` in events.jsonl. Output has logs of its own."""
MOST_TASKS, MOST_NAME = 10_000, 255
"""Tasks of a run, and characters of their names, which are names of folders. Entries about others are left out."""


@dataclass
class GrowingFile:
    """A file that is read from the end of the last read."""

    path: Path
    offset: int = 0
    rest: bytes = b""
    """The start of a line whose end is missing, for `lines`."""

    def read(self) -> bytes:
        """Up to CHUNK bytes that were added; empty if there are none, or no file yet."""
        try:
            with open_regular(self.path) as file:
                if os.fstat(file.fileno()).st_size <= self.offset:
                    return b""
                self.offset = start_of_data(file.fileno(), self.offset)  # tfdist writes no holes
                file.seek(self.offset)
                data = file.read(CHUNK)
        except OSError:
            return b""
        self.offset += len(data)
        return data

    def lines(self, ended: bool) -> str:
        """Whole lines that were added; at the end of a file that has ended also one without a newline. Empty if none.

        A line that is longer than a chunk comes in pieces.
        """
        while data := self.read():
            data = self.rest + data
            end = data.rfind(b"\n") + 1
            if not end and len(data) > CHUNK:
                end = end_of_characters(data)
            self.rest = data[end:]
            if end:
                return data[:end].decode("utf-8", "surrogateescape")
        last, self.rest = (self.rest, b"") if ended else (b"", self.rest)
        return last.decode("utf-8", "surrogateescape")


@dataclass
class TaskLog:
    """A task's log of its latest attempt, then those of the attempts that follow."""

    run_dir: RunDir
    task: str
    stream: str
    _files: dict[int, GrowingFile] = field(default_factory=dict)
    """Files by attempt, from the one that was the latest at the first read."""

    def read(self) -> bytes:
        """Up to CHUNK bytes that were added; empty if there are none."""
        attempts = [number for number, _ in self.run_dir.attempts(self.task)]
        first = min(self._files, default=max(attempts, default=0))
        for attempt in attempts:
            path = self.run_dir.log(self.task, self.stream, attempt)
            if attempt >= first and (data := self._files.setdefault(attempt, GrowingFile(path)).read()):
                return data
        return b""


@dataclass
class RunFollower:
    """The output and events of a run as messages, in the order in which they are found.

    Anybody may have written them: entries that are no messages are left out, and no file is too large.
    """

    run_dir: RunDir
    streams: tuple[StreamName, ...] = STREAMS
    _events: GrowingFile = field(init=False)
    _logs: dict[tuple[int, str, StreamName], GrowingFile] = field(default_factory=dict)
    _number: int = 0
    """Number of lines of events that were read."""
    _left_out: int = 0
    """Up to this number of lines, only the steps in `_last_steps` are messages."""
    _last_steps: set[int] = field(default_factory=set)
    _tasks: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._events = GrowingFile(self.run_dir.events)

    def skip_events(self) -> None:
        """Leave out all events so far."""
        with suppress(OSError), open_regular(self.run_dir.events) as file:
            self._events.offset = os.fstat(file.fileno()).st_size

    def events(self, ended: bool = False, wanted: Callable[[str], bool] = lambda _: True) -> Iterator[Message]:
        """What happened since the last call, without output. Lines of events.jsonl that are not `wanted` are left out
        before they are parsed, which takes most of the time.
        """
        while text := self._events.lines(ended):
            for line in text.removesuffix("\n").split("\n"):
                self._number += 1
                if self._number <= self._left_out and self._number not in self._last_steps and step_of(line):
                    continue
                if not wanted(line):
                    continue
                message = _message(line)
                names = {getattr(message, "task", ""), *getattr(message, "tasks", ())} - self._tasks
                has_room = len(names) + len(self._tasks) <= MOST_TASKS and all(len(name) <= MOST_NAME for name in names)
                if message is not None and has_room:
                    self._tasks |= names
                    yield message

    def output(self, ended: bool = False) -> Iterator[Output]:
        """What tasks wrote since the last call: whole lines, by task and stream."""
        self._find_logs()
        for (attempt, task, stream), log in self._logs.items():
            while text := log.lines(ended):
                yield Output(task, stream, text, attempt=attempt)

    def skip_to_tail(self, lines: int) -> None:
        """Leave out all output so far but the last lines of each log, and all steps but the last ones of each task."""
        self._find_logs()
        for log in self._logs.values():
            log.offset = _offset_of_tail(log.path, lines)
        steps: dict[str, deque[int]] = {}
        events = GrowingFile(self.run_dir.events)
        while text := events.lines(ended=False):
            for line in text.removesuffix("\n").split("\n"):
                self._left_out += 1
                task = step_of(line)
                if task in steps or (0 < len(task) <= MOST_NAME and len(steps) < MOST_TASKS):
                    steps.setdefault(task, deque(maxlen=lines)).append(self._left_out)
        self._last_steps = set(chain.from_iterable(steps.values()))

    def _find_logs(self) -> None:
        order = {task: index for index, task in enumerate(tasks_of(self.run_dir))} if not self._logs else {}
        attempts = sorted(self.run_dir.attempts(), key=lambda key: (key[0], order.get(key[1], 0), key[1]))
        for attempt, task in attempts:
            for stream in self.streams:
                path = self.run_dir.log(task, stream, attempt)
                if os.path.exists(path):  # noqa: PTH110 - Path.exists() raises PermissionError
                    self._logs.setdefault((attempt, task, stream), GrowingFile(path))


def wait_for_end(
    run_dir: RunDir, show: Callable[[bool], object], pause: Callable[[float], object] = time.sleep
) -> None:
    """Call `show(False)` every POLL_S until the run has ended, then `show(True)` once, and wait for its launcher.

    It may still find that records are missing, which changes the outcome.
    """
    while not read_run(run_dir).ended:
        show(False)
        pause(POLL_S)
    show(True)
    wait_for_launcher(run_dir)


def wait_for_launcher(run_dir: RunDir) -> None:
    """Wait until the launcher of a run that has ended has exited, but at most `LAUNCHER_S`."""
    launcher = read_launcher(run_dir)
    until = time.monotonic() + LAUNCHER_S
    while launcher is not None and launcher.local and launcher.alive and time.monotonic() < until:
        time.sleep(0.02)


def _message(line: str) -> Message | None:
    """The message in a line of events.jsonl, with texts that can be shown; None for entries that are no messages."""
    try:
        values = with_texts(parse_json(line), lambda text: replace_surrogates(plain(text)))
        message: Message = from_json(values, _KINDS[values["kind"]])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return message


def step_of(line: str) -> str:
    """The task whose step is in a line of `RunWriter`, else empty. To parse all steps of a long run takes minutes."""
    return line.partition('"task": "')[2].partition('"')[0] if '"event": "step"' in line else ""


def _offset_of_tail(path: Path, lines: int) -> int:
    """Where the last `lines` lines of a file start, but at most CHUNK bytes before its end."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - CHUNK))
            data = file.read(2 * CHUNK)  # it may grow meanwhile
            end = file.tell()
    except OSError:
        return 0
    tail = data.removesuffix(b"\n").split(b"\n")[-lines:]
    return end - data.endswith(b"\n") - len(b"\n".join(tail))
