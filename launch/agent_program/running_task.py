"""One attempt of a task: its state, and what it writes, as messages to the launcher. Part of the agent."""

import contextlib
import json
import math
import os
import selectors
import signal
import time
from collections.abc import Callable
from typing import Any

from tfdist.launch.agent_program.description import oom_kills
from tfdist.launch.agent_program.json_lines import LineReader, to_line
from tfdist.launch.agent_program.system import event_time
from tfdist.launch.agent_program.text import MAX_VALUES, end_of_characters, too_many_values, why_refused

CHUNK = 1 << 16
"""Bytes per read."""
MAX_EVENT = 1 << 20
"""Bytes of an event. Longer ones are dropped."""
MAX_EVENT_DEPTH = 50
"""Levels of lists and objects. A deeper JSON object could exhaust the stack of a recursive reader."""
PARTIAL_S = 1.0
"""Send an incomplete line of output after this time (progress bars end theirs with a carriage return)."""
MOST_STACK_HANDLERS = 64
"""Processes of a task that are asked for their stacks."""


class RunningTask:
    """One attempt of a task, until all that it has written was sent."""

    def __init__(
        self, name: str, attempt: int, pid: int, pipes: dict[str, int], port: int | None, send: Callable[..., None]
    ) -> None:
        self.name, self.attempt, self.pid, self.port = name, attempt, pid, port
        self._send = send  # a message: its kind and its values
        self._barrier: int | None = pipes.pop("barrier")
        self._pipes = pipes  # those that are still open, by stream
        self.running = True  # until it is reaped; afterwards its pid may belong to another process
        self.exit: dict[str, Any] = {}  # the values of its `Exited`, once it is reaped
        self.launched = False  # it runs its program
        self.listening = self.stopped = self.killed = False
        self.kill_at = self.stuck_at = math.inf
        self._events = LineReader(MAX_EVENT + 1)
        self._partial: dict[str, bytes] = {}  # the incomplete last line of each other stream
        self.partial_due: dict[str, float] = {}
        self._noted_drops: set[str] = set()  # reasons for which events were dropped
        self.oom_kills_before = oom_kills()
        self.stack_handlers: dict[int, int] = {}  # signals that make its processes write their stacks, by pid
        self.stacks_written_at = -math.inf

    def report(self, kind: str, **values: Any) -> None:
        """Send a message about it."""
        self._send(kind, task=self.name, attempt=self.attempt, **values)

    def release(self, turn: dict[str, Any] | None) -> None:
        """Open the barrier: the task, which reads the other end of this pipe, gets the turn as a line, or the end."""
        if self._barrier is None:
            return
        if turn is None:
            os.close(self._barrier)
            self._barrier = None
            return
        with contextlib.suppress(OSError):  # the task has exited, or never reads
            os.write(self._barrier, to_line(turn))

    def awaits_server(self) -> bool:
        """Whether the server that it is to run was not found to listen."""
        return self.port is not None and self.launched and not self.listening

    # --- what it writes

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Register its pipes, each with the task and the name of the stream, which `relay` gets once it can be read."""
        self._selector = selector
        for stream, descriptor in self._pipes.items():
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ, (self, stream))

    def relay(self, stream: str) -> bool:
        """Read one chunk of a stream and send what is complete; return whether there was anything to read."""
        if stream not in self._pipes:  # closed since its turn came: the start was read before another stream
            return False
        if stream != "failure" and "failure" in self._pipes:
            self.relay("failure")  # the start is reported first
        try:
            chunk = os.read(self._pipes[stream], CHUNK)
        except BlockingIOError:
            return False
        if stream == "stacks" and chunk:
            self.stacks_written_at = time.monotonic()
        if not chunk or stream == "failure":
            self._selector.unregister(self._pipes[stream])
            os.close(self._pipes.pop(stream))
        if stream == "failure" and chunk:
            self.report("not_started", reason=chunk.decode(errors="replace"))
        elif stream == "failure":  # the end: it runs its program
            self.launched = True
            self.report("started", pid=self.pid, time=event_time())
        elif stream == "events":
            for line in self._events.feed(chunk or b"\n"):
                self._relay_event(line)
        else:
            self._relay_text(stream, chunk)
        return bool(chunk)

    def _relay_text(self, stream: str, chunk: bytes) -> None:
        """Send whole lines; keep an incomplete one for `PARTIAL_S`, unless it is a chunk long."""
        text = self._partial.pop(stream, b"") + chunk
        end = text.rfind(b"\n") + 1 if chunk else len(text)
        if len(text) - end >= CHUNK:
            end = end_of_characters(text)
        self.send_text(stream, text[:end])
        if end:
            self.partial_due.pop(stream, None)
        if end < len(text):
            self._partial[stream] = text[end:]
            self.partial_due.setdefault(stream, time.monotonic() + PARTIAL_S)

    def send_partial_lines(self, now: float) -> None:
        """Send the incomplete lines whose time has come."""
        for stream in [stream for stream, due in self.partial_due.items() if now >= due]:
            del self.partial_due[stream]
            text = self._partial.pop(stream)
            end = end_of_characters(text)
            self.send_text(stream, text[:end])
            self._partial[stream] = text[end:]

    def send_text(self, stream: str, text: bytes) -> None:
        """Send a part of a stream, unless it is empty."""
        if text:
            decoded = text.decode("utf-8", "surrogateescape")  # bytes that are not UTF-8 travel as surrogates
            self.report("output", stream=stream, text=decoded)

    def _relay_event(self, line: bytes) -> None:
        if len(line) > MAX_EVENT or too_many_values(line):
            most = "1 MiB" if len(line) > MAX_EVENT else f"{MAX_VALUES:,} values"
            self._note_drop(f"it has more than {most}")
            return
        try:
            event = dict(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            return
        refusal = why_refused(event, MAX_EVENT_DEPTH)
        if refusal:
            self._note_drop(refusal, event.get("event"))
            return
        if event.get("event") == "stacks":
            pid, number = event.get("pid"), event.get("signal")
            full = len(self.stack_handlers) >= MOST_STACK_HANDLERS
            if type(pid) is type(number) is int and pid > 1 and 0 < number <= signal.SIGRTMAX and not full:
                self.stack_handlers[pid] = number
        self.report("event", time=event_time(), event=event)

    def _note_drop(self, reason: str, name: Any = None) -> None:
        """Write why an event was dropped to the stderr of the task: one line for each reason."""
        if reason not in self._noted_drops:
            self._noted_drops.add(reason)
            event = f"the event {name[:50]!a}" if isinstance(name, str) else "an event"
            self._relay_text("stderr", f"tfdist: {event} was dropped: {reason}\n".encode())

    def send_exit(self) -> None:
        """Send what is left in its pipes, then its exit."""
        for stream in list(self._pipes):
            for _ in range(16):  # a pipe holds at most 1 MiB (fs.pipe-max-size)
                if not self.relay(stream):
                    break
        for stream in ("stdout", "stderr", "stacks"):  # a pipe may be open in another process
            self.send_text(stream, self._partial.pop(stream, b""))
        if self.launched:
            self.report("exited", **self.exit)
