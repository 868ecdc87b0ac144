"""The launcher's connection to one agent: a process, its pipes, and a thread that reads its messages."""

import contextlib
import errno
import fcntl
import math
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

from tfdist.launch.agents.bootstrap import agent_argv, agent_source
from tfdist.launch.agents.messages import (
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
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host

CLEAN_UP_S = 10.0
"""For an agent to stop its tasks and clean up; it gives the tasks 5 s."""

Inbox = SimpleQueue[tuple["Channel | None", FromAgent | AgentLost | Interrupted]]
"""The queue of all events. A SimpleQueue, because signal handlers put into it."""

PIPE_BYTES = 1 << 20
"""The largest pipe that any user may have (fs.pipe-max-size). The zipped package fits, so sending it does not block."""
UNREAD_OUTPUTS = 256
"""Unprocessed `Output` messages (at most 64 KiB each) after which the stream is left unread, and the tasks block."""


class Channel:
    """One agent's stdin and stdout. Messages from the agent go to the inbox, with this channel as their source."""

    def __init__(self, host: Host, inbox: Inbox) -> None:
        """Start an agent on `host`. Its first message will be `Hello`, or `AgentLost`.

        Raises:
            TfdistError: the program that connects to the host cannot be started.
        """
        self.host = host
        self.last_received = time.monotonic()
        """When the last message came; infinity while the stream is left unread."""
        self.hello_at = 0.0
        """Wall clock time at which the hello came; 0 before."""
        self.output_slots = threading.Semaphore(UNREAD_OUTPUTS)
        """The consumer of the inbox releases one for each `Output` that it has processed."""
        self.silent = False
        """Nothing was received for too long, so `close` does not wait for the agent."""
        self._write_lock = threading.Lock()
        self._closing = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        try:
            self._process = subprocess.Popen(
                agent_argv(host),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,  # Ctrl-C at the terminal goes to the launcher only
            )
        except OSError as error:
            self._stderr.close()
            program = agent_argv(host)[0]
            fix = "raise 'ulimit -n'" if error.errno == errno.EMFILE else "install it, or specify another program"
            raise TfdistError(f"cannot run {program!r} ({error.strerror}): {fix}") from None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the kernel limits large pipes per user; with a small one, writes may block
            fcntl.fcntl(self._process.stdin, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._write(agent_source())
        self._reader = threading.Thread(target=self._read, args=(inbox,), name=f"agent on {host.name}", daemon=True)
        self._reader.start()

    def send(self, message: ToAgent) -> None:
        """Send one message. Does not raise if the agent is gone: the inbox then gets an `AgentLost`."""
        self._write(encode(message))

    def close_stdin(self) -> None:
        """Make the agent clean up its host and exit; do not wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._closing = True
        self.output_slots.release()  # a blocked reader continues

    def close(self, timeout_s: float = CLEAN_UP_S) -> None:
        """Make the agent exit and wait until it has cleaned up; after `timeout_s`, kill our end of the connection.

        Does not wait for an agent that has sent no hello (it has nothing to clean up) or that is silent.
        """
        self.close_stdin()
        if self.silent or not self.hello_at:
            timeout_s = 0.0
        self._reader.join(timeout_s)  # returns at end of file; Popen.wait with a timeout would poll
        try:
            self._process.wait(timeout=0.0 if self._reader.is_alive() else timeout_s)
        except subprocess.TimeoutExpired:
            self._kill()
        self._reader.join(timeout=5)
        if not self._reader.is_alive():  # else closing would block
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1.0)  # reaps one that ended by itself
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._stderr.close()

    def _kill(self) -> None:
        # The group, since ssh may have started a ProxyCommand. Processes of another user (sudo) cannot be signalled;
        # they end with their stream.
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1.0)
                return

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with self._write_lock, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def _read(self, inbox: Inbox) -> None:
        assert self._process.stdout is not None
        reason, text = "", ""
        for line in self._process.stdout:
            self.last_received = time.monotonic()
            try:
                message = decode(line)
            except ValueError as error:
                if not self.hello_at:  # output of a login script, or why the login failed
                    text = line.decode(errors="replace").strip() or text
                    continue
                reason = str(error)
                break
            self.hello_at = self.hello_at or time.time()
            if isinstance(message, Output) and not self._closing:
                self.last_received = math.inf
                self.output_slots.acquire()
                self.last_received = time.monotonic()
            if isinstance(message, Leaving):
                inbox.put((self, AgentLost(self.host.name, message.reason)))
                continue
            inbox.put((self, message))
        inbox.put((self, AgentLost(self.host.name, reason or self._stderr_text() or text or "its stream ended")))

    def _stderr_text(self) -> str:
        """The start of the stderr of the agent, or of the ssh that carries it."""
        return os.pread(self._stderr.fileno(), 1 << 16, 0).decode(errors="replace").strip()


@contextlib.contextmanager
def heartbeats(channels: Sequence[Channel], interval_s: float) -> Iterator[None]:
    """Send heartbeats to the agents on other hosts, from a thread, so that a blocked console cannot delay them.

    The local agent gets none: its stream ends if the launcher dies, and a suspended launcher (Ctrl-Z) should not end
    a training.
    """
    stopped = threading.Event()
    remote = [channel for channel in channels if not channel.host.local]

    def send_all() -> None:
        while True:  # the first at once: an agent watches for a cut link only after its first heartbeat
            for channel in remote:
                channel.send(Heartbeat())
            if stopped.wait(interval_s):
                return

    thread = threading.Thread(target=send_all, name="heartbeats", daemon=True)
    if remote:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        if remote:
            thread.join()
