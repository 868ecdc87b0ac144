"""Hosts that are played: one thread answers for the agents of all of them, so the launcher is what costs.

The launcher starts a process for each host. Here it is `sh` (dash: 0.7 ms of CPU time and 150 KiB; socat takes 2.8 ms
and 900 KiB, and `nc -U` the time of dash, but both must be installed, and copy every byte). It tells the fleet its pid,
and waits until a FIFO is opened. The fleet opens the pipes of its stdin and stdout (/proc/PID/fd), so nothing copies
the messages. Needs Linux, and two descriptors a host.
"""

import heapq
import json
import os
import re
import select
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.fleet import task as tasks
from lab.fleet.answers import answers_to, exited
from tfdist.launch.agent_program.agent import HEARTBEAT_S
from tfdist.launch.agent_program.description import describe
from tfdist.launch.agent_program.json_lines import LineReader, to_line
from tfdist.launch.agent_program.system import event_time

CHUNK = 1 << 18
ANNOUNCE = 'exec 3<&0 4>&1; echo "$$ $1" > "$0/announced"; : < "$0/$1"'
"""Run by `sh` for each host: the last open waits until the fleet opens the FIFO to write. 3 and 4: a redirection
replaces 0 and 1 for a moment."""

START = re.compile(rb'\{"kind": "start", "task": "([\w-]+)", "attempt": (\d+),')
"""The beginning of a message that has the addresses of all tasks: to parse all of them takes 3 s for 4,000 hosts."""


@dataclass
class PlayedHost:
    """The agent of one host and its task. Times are monotonic."""

    name: str
    source: int
    """Descriptor of the launcher's messages."""
    sink: int
    """Descriptor of the messages to the launcher."""
    head: bytes = b""
    """The start of the line with the length of the agent's program."""
    skip: int | None = None
    """Bytes of the program that are still to come; None: its length is unknown yet."""
    reader: LineReader = field(default_factory=LineReader)
    unsent: bytearray = field(default_factory=bytearray)
    waits: bool = False
    """The launcher does not read: the rest is sent once the pipe has room."""
    last_sent: float = 0.0
    task: str = ""
    """The task that runs, or the last one that did."""
    attempt: int = 0
    runs: bool = False
    step: int = 0

    def lines(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete: those after the program of the agent."""
        if self.skip is None:
            self.head, newline, data = (self.head + data).partition(b"\n")
            if not newline:
                return []
            self.skip = int(self.head)
        skipped = min(self.skip, len(data))
        self.skip -= skipped
        return self.reader.feed(data[skipped:])


def parsed(line: bytes) -> dict[str, Any]:
    """A message of the launcher; of a start only the task and the attempt."""
    if start := START.match(line):
        return {"kind": "start", "task": start[1].decode(), "attempt": int(start[2])}
    message: dict[str, Any] = json.loads(line)
    return message


class PlayedFleet:
    """The event loop. `fail` and `stop` may be called from any thread."""

    def __init__(self, folder: Path, names: Sequence[str], delay_s: float) -> None:
        """Play the hosts of these names, each of which answers after `delay_s`; `folder` gets a FIFO for each."""
        self.folder, self.delay_s, self.number = folder, delay_s, len(names)
        self.cpu_s = 0.0
        """CPU time of the loop so far."""
        self.failed_at = 0.0
        """When `fail` has let a task exit, in seconds since 1970."""
        for name in ("announced", *names):
            os.mkfifo(folder / name)
        self._announced = os.open(folder / "announced", os.O_RDWR | os.O_NONBLOCK)  # open for writing: it never ends
        self._announcements = LineReader()
        self._wake, self._waker = os.pipe()
        self._hello = to_line({"kind": "hello", "description": describe()})
        self._hosts: dict[str, PlayedHost] = {}
        self._by_descriptor: dict[int, PlayedHost] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._requests: deque[str | None] = deque()
        self._poll = select.epoll()
        for descriptor in (self._announced, self._wake):
            self._poll.register(descriptor, select.EPOLLIN)

    @property
    def transport(self) -> str:
        """The value of --transport."""
        return f"exec:{shlex.join(['sh', '-c', ANNOUNCE, str(self.folder)])} {{host}}"

    def fail(self, task: str) -> None:
        """Let a task fail now, and all others as its consequences."""
        self._requests.append(task)
        os.write(self._waker, b"\0")

    def stop(self) -> None:
        """Let `run` end."""
        self._requests.append(None)
        os.write(self._waker, b"\0")

    def run(self) -> None:
        """Play until `stop` was called; then end the processes that the launcher has started for the hosts."""
        try:
            while self._turn():
                self.cpu_s = time.thread_time()
        finally:
            for host in list(self._hosts.values()):
                self._end(host)

    def close(self) -> None:
        """Close what `run` has used, after its end."""
        self._poll.close()
        for descriptor in (self._announced, self._wake, self._waker):
            os.close(descriptor)

    def _turn(self) -> bool:
        until = self._due[0][0] if self._due else None
        for descriptor, _ in self._poll.poll(None if until is None else max(0.0, until - time.monotonic())):
            if descriptor == self._announced:
                for line in self._announcements.feed(os.read(descriptor, CHUNK)):
                    self._connect(*line.decode().split())
            elif descriptor == self._wake:
                os.read(descriptor, 1)
                task = self._requests.popleft()
                if task is None:
                    return False
                self._fail(task)
            else:
                self._serve(self._by_descriptor.get(descriptor), descriptor)
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        return True

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._due, (time.monotonic() + seconds, self._scheduled, action))

    # --- the stream of a host

    def _connect(self, pid: str, name: str) -> None:
        try:
            source = os.open(f"/proc/{pid}/fd/3", os.O_RDONLY | os.O_NONBLOCK)
            sink = os.open(f"/proc/{pid}/fd/4", os.O_WRONLY | os.O_NONBLOCK)
        except FileNotFoundError:  # the launcher has ended it
            return
        host = self._hosts[name] = PlayedHost(name, source, sink)
        self._by_descriptor |= {source: host, sink: host}
        self._poll.register(source, select.EPOLLIN)
        self._later(self.delay_s, lambda: self._greet(host))

    def _greet(self, host: PlayedHost) -> None:
        alive = to_line({"kind": "logged_in"}) + to_line({"kind": "alive", "time": event_time()})
        self._send(host, alive + self._hello)
        self._later(HEARTBEAT_S, lambda: self._beat(host))

    def _serve(self, host: PlayedHost | None, descriptor: int) -> None:
        if host is None:
            return
        if descriptor == host.sink:
            self._flush(host)
            return
        try:
            data = os.read(host.source, CHUNK)
        except BlockingIOError:  # it was for a host that has ended in this turn, and had this number
            return
        if not data:  # the launcher has closed it
            self._end(host)
            return
        for line in host.lines(data):
            self._receive(host, parsed(line))

    def _send(self, host: PlayedHost, data: bytes) -> None:
        host.unsent += data
        host.last_sent = time.monotonic()
        self._flush(host)

    def _flush(self, host: PlayedHost) -> None:
        if host.name not in self._hosts:
            return
        try:
            del host.unsent[: os.write(host.sink, host.unsent)]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._end(host)
            return
        if bool(host.unsent) != host.waits:
            host.waits = not host.waits
            if host.waits:
                self._poll.register(host.sink, select.EPOLLOUT)
            else:
                self._poll.unregister(host.sink)

    def _end(self, host: PlayedHost) -> None:
        """End the stream to the launcher, and the process that it has started for the host."""
        if self._hosts.pop(host.name, None) is None:
            return
        host.runs = False
        for descriptor in (host.source, host.sink):
            del self._by_descriptor[descriptor]
            os.close(descriptor)  # the poll forgets it
        with suppress(OSError):  # it has ended already
            os.close(os.open(self.folder / host.name, os.O_WRONLY | os.O_NONBLOCK))

    # --- what an agent does

    def _receive(self, host: PlayedHost, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "start":
                self._later(self.delay_s, lambda: self._start(host, message["task"], message["attempt"]))
            case "stop":
                self._later(self.delay_s, lambda: self._exit(host, -15))
            case "finish":
                self._later(self.delay_s, lambda: self._end(host))
            case _ if "request" in message:
                self._later(self.delay_s, lambda: self._answer(host, message))

    def _answer(self, host: PlayedHost, message: dict[str, Any]) -> None:
        lines = answers_to(message, host.task if host.runs else "", host.attempt)
        self._send(host, b"".join(map(to_line, lines)))

    def _start(self, host: PlayedHost, task: str, attempt: int) -> None:
        host.task, host.attempt, host.runs, host.step = task, attempt, True, 0
        of_task = {"task": task, "attempt": attempt}
        started = {"kind": "started", **of_task, "pid": os.getpid(), "time": event_time()}
        hello = {"kind": "output", **of_task, "stream": "stdout", "text": tasks.HELLO}
        listening = {"kind": "listening", **of_task, "time": event_time()}
        self._send(host, b"".join(map(to_line, (started, hello, listening))))
        self._later(0.0, lambda: self._step(host, attempt))

    def _step(self, host: PlayedHost, attempt: int) -> None:
        if host.runs and host.attempt == attempt:
            host.step += 1
            self._send_of_task(host, "event", time=event_time(), event=tasks.step_event(host.step))
            self._later(tasks.STEP_S, lambda: self._step(host, attempt))

    def _beat(self, host: PlayedHost) -> None:
        if host.name in self._hosts:
            left_s = host.last_sent + HEARTBEAT_S - time.monotonic()
            if left_s <= 0:
                self._send(host, to_line({"kind": "heartbeat", "time": event_time()}))
            self._later(left_s if left_s > 0 else HEARTBEAT_S, lambda: self._beat(host))

    def _send_of_task(self, host: PlayedHost, kind: str, **values: Any) -> None:
        self._send(host, to_line({"kind": kind, "task": host.task, "attempt": host.attempt, **values}))

    def _exit(self, host: PlayedHost, code: int) -> None:
        if host.runs:
            host.runs = False
            self._send(host, to_line(exited(host.task, host.attempt, code)))

    def _fail(self, culprit: str) -> None:
        running = [host for host in self._hosts.values() if host.runs]
        self.failed_at = event_time()
        for number, host in enumerate(running):
            wait_s = 0.0 if host.task == culprit else self.delay_s + tasks.delay_s(number, len(running))
            self._later(wait_s, lambda host=host: self._raise(host, culprit))  # type: ignore[misc]

    def _raise(self, host: PlayedHost, culprit: str) -> None:
        if host.runs:
            text, event = tasks.failure(host.task, culprit)
            self._send_of_task(host, "event", time=event_time(), event=event)
            self._send_of_task(host, "output", stream="stderr", text=text)
            self._exit(host, tasks.FAILED)


@contextmanager
def played(folder: Path, names: Sequence[str], delay_s: float) -> Iterator[PlayedFleet]:
    """A fleet in a thread; its `transport` reaches the hosts of these names. `folder` must be empty."""
    fleet = PlayedFleet(folder, names, delay_s)
    thread = threading.Thread(target=fleet.run, name="fleet")
    thread.start()
    try:
        yield fleet
    finally:
        fleet.stop()
        thread.join()
        fleet.close()
