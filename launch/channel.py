"""A running agent as the launcher sees it: say something to it, and what it says arrives in the inbox."""

import contextlib
import math
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

from tfdist.launch.hosts import Host
from tfdist.launch.messages import (
    AgentLost,
    FromAgent,
    Heartbeat,
    Interrupted,
    Leaving,
    Output,
    ToAgent,
    decode,
    encode,
)
from tfdist.launch.transport import agent_argv, agent_source

Inbox = SimpleQueue[tuple["Channel | None", FromAgent | AgentLost | Interrupted]]
"""The one queue of events. SimpleQueue, since a signal handler puts into it."""

UNREAD_OUTPUTS = 256
"""Pieces of output (64 KiB at most) that may wait in the inbox; then the stream is left unread and tasks wait."""


class Channel:
    """The launcher's end of one agent's stdin and stdout."""

    def __init__(self, host: Host, inbox: Inbox) -> None:
        """Start an agent on `host`; its hello comes through `inbox`."""
        self.host = host
        self.heard = time.monotonic()
        """When it last said something; infinity while we ourselves leave it unread."""
        self._saying = threading.Lock()
        self._closing = False
        self.room = threading.Semaphore(UNREAD_OUTPUTS)
        self._process = subprocess.Popen(
            agent_argv(host),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is ours to handle, not the agent's
        )
        self._write(agent_source())
        self._reader = threading.Thread(target=self._read, args=(inbox,), name=f"agent on {host.name}", daemon=True)
        self._reader.start()

    def say(self, message: ToAgent) -> None:
        """Send one message. An agent that is gone is noticed by its silence, not here."""
        self._write(encode(message))

    def close(self) -> None:
        """End the agent, which cleans up its host, and wait until it has; kill it if it takes too long."""
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        with contextlib.suppress(OSError):
            if stdin is not None:
                stdin.close()
        self._closing = True
        self.room.release()  # a reader that waits for room need not wait any more
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=5)
        for stream in (stdout, stderr):
            if stream is not None:
                stream.close()

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with self._saying, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def _read(self, inbox: Inbox) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        reason = ""
        for line in self._process.stdout:
            self.heard = time.monotonic()
            try:
                message = decode(line)
            except ValueError as error:
                reason = str(error)
                break
            if isinstance(message, Output) and not self._closing:
                self.heard = math.inf
                self.room.acquire()
                self.heard = time.monotonic()
            if isinstance(message, Leaving):
                inbox.put((self, AgentLost(self.host.name, message.reason)))
                continue
            inbox.put((self, message))
        if not reason:
            words = self._process.stderr.read().decode(errors="replace").strip().splitlines()
            reason = words[-1] if words else "its stream ended"
        inbox.put((self, AgentLost(self.host.name, reason)))


@contextlib.contextmanager
def heartbeats(channels: Sequence[Channel], every_s: float) -> Iterator[None]:
    """While this lasts, tell the agents on other hosts every few seconds that we are alive.

    From a thread of its own, for a console that takes no more text may hold up everything else. The local agent needs
    none: its stream ends when we do, and a launcher that is merely paused (Ctrl-Z) is no reason to end a training.
    """
    over = threading.Event()
    others = [channel for channel in channels if not channel.host.local]

    def beat() -> None:
        while not over.wait(every_s):
            for channel in others:
                channel.say(Heartbeat())

    thread = threading.Thread(target=beat, name="heartbeats", daemon=True)
    if others:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if others:
            thread.join()
