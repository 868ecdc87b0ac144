"""A running agent as the launcher sees it: say something to it, and what it says arrives in the inbox."""

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
"""For an agent to end its tasks and clean up: it gives them 6 s."""

Inbox = SimpleQueue[tuple["Channel | None", FromAgent | AgentLost | Interrupted]]
"""The one queue of events. SimpleQueue, since a signal handler puts into it."""

PIPE_BYTES = 1 << 20
"""As large as anybody may make a pipe (fs.pipe-max-size): our package fits in, so saying it never waits for a host."""
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
        self.greeted_at = 0.0
        """What this machine's clock said when its hello came."""
        self.room = threading.Semaphore(UNREAD_OUTPUTS)
        self.silent = False
        """It has said nothing for too long, so it will not say goodbye either."""
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        try:
            self._process = subprocess.Popen(
                agent_argv(host),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                start_new_session=True,  # a Ctrl-C at the terminal is ours to handle, not the agent's
            )
        except OSError as error:
            self._words.close()
            program = agent_argv(host)[0]
            mend = "raise 'ulimit -n'" if error.errno == errno.EMFILE else "install it, or name another one"
            raise TfdistError(f"{program!r} cannot be run ({error.strerror}): {mend}") from None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # too many large pipes are refused; then writing may wait
            fcntl.fcntl(self._process.stdin, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._write(agent_source())
        self._reader = threading.Thread(target=self._read, args=(inbox,), name=f"agent on {host.name}", daemon=True)
        self._reader.start()

    def say(self, message: ToAgent) -> None:
        """Send one message. An agent that is gone is noticed by its silence, not here."""
        self._write(encode(message))

    def let_go(self) -> None:
        """Let the agent end, which cleans up its host; do not wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._closing = True
        self.room.release()  # a reader that waits for room need not wait any more

    def close(self, within_s: float = CLEAN_UP_S) -> None:
        """End the agent and wait until it has cleaned up; end what connects to it if it takes too long.

        One that has not said hello has nothing to clean up, and one that is silent will not be heard to.
        """
        self.let_go()
        patience_s = 0.0 if self.silent or not self.greeted_at else within_s
        self._reader.join(patience_s)  # woken when the stream ends; waiting for a process with a limit means polling
        try:
            self._process.wait(timeout=0.0 if self._reader.is_alive() else patience_s)
        except subprocess.TimeoutExpired:
            self._end()
        self._reader.join(timeout=5)
        if not self._reader.is_alive():  # else closing would wait for it
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._words.close()

    def _end(self) -> None:
        """Polite, then firm, to what connects and what that has started, as ssh a ProxyCommand.

        What runs as another user (as behind sudo) is not ours to signal; it ends with its stream.
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1.0)
                return

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with self._saying, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def _read(self, inbox: Inbox) -> None:
        assert self._process.stdout is not None
        reason, noise = "", ""
        for line in self._process.stdout:
            self.heard = time.monotonic()
            try:
                message = decode(line)
            except ValueError as error:
                if not self.greeted_at:  # what a login script prints, or somebody who does not let us in
                    noise = line.decode(errors="replace").strip() or noise
                    continue
                reason = str(error)
                break
            self.greeted_at = self.greeted_at or time.time()
            if isinstance(message, Output) and not self._closing:
                self.heard = math.inf
                self.room.acquire()
                self.heard = time.monotonic()
            if isinstance(message, Leaving):
                inbox.put((self, AgentLost(self.host.name, message.reason)))
                continue
            inbox.put((self, message))
        inbox.put((self, AgentLost(self.host.name, reason or self._last_words() or noise or "its stream ended")))

    def _last_words(self) -> str:
        """What was said on stderr; the way there is what says why there is none."""
        return os.pread(self._words.fileno(), 1 << 16, 0).decode(errors="replace").strip()


@contextlib.contextmanager
def heartbeats(channels: Sequence[Channel], every_s: float) -> Iterator[None]:
    """While this lasts, tell the agents on other hosts every few seconds that we are alive.

    From a thread of its own, for a console that takes no more text may hold up everything else. The local agent needs
    none: its stream ends when we do, and a launcher that is merely paused (Ctrl-Z) is no reason to end a training.
    """
    over = threading.Event()
    others = [channel for channel in channels if not channel.host.local]

    def beat() -> None:
        while True:  # the first one at once: before it, an agent would not notice that the way to it is cut
            for channel in others:
                channel.say(Heartbeat())
            if over.wait(every_s):
                return

    thread = threading.Thread(target=beat, name="heartbeats", daemon=True)
    if others:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if others:
            thread.join()
