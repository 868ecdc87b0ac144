"""The launcher's connection to one agent: a process and its pipes, which one thread reads for all agents.

Slurm sends SIGTERM to all processes of a job, and SIGKILL `KillWait` later. srun does not wait: on SIGTERM, it sends
SIGKILL to all processes of its step, over a new connection. But agent and tasks save a checkpoint then, and srun
carries their messages, for which it needs no new connection. So a shield keeps it from opening any. It needs one at the
end of the step, and uses a whole core until it gets it.
"""

import contextlib
import errno
import math
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from tfdist.launch.agent_program.json_lines import LineReader
from tfdist.launch.agent_program.optional import limit_open_files
from tfdist.launch.agent_program.system import event_time
from tfdist.launch.agents.bootstrap import agent_argv, agent_source
from tfdist.launch.agents.inbox import AgentLost, Inbox
from tfdist.launch.agents.messages import Alive, Event, Heartbeat, Leaving, Timed, ToAgent, decode, encode
from tfdist.launch.agents.streams import STREAMS
from tfdist.launch.agents.template import StartedAgent, Template
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.text import plain
from tfdist.launch.threads import NO_PROCESSES, start_thread

Limit = tuple[int, int]
"""Soft and hard."""


def shield(pid: int) -> Limit | None:
    """Let the process open nothing more, while what it has open stays open; returns its limit until now.

    None: it has exited, or may not be changed.
    """
    try:
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}  # noqa: PTH208 - numbers, not paths
        soft, hard = limit_open_files(pid)
        lowest_free = next(number for number in count() if number not in used)
        limit_open_files(pid, (lowest_free, hard))
    except (OSError, ValueError):
        return None
    return soft, hard


def unshield(pid: int, limit: Limit) -> None:
    """Let the process open files and connections again, as before `shield`."""
    with contextlib.suppress(OSError, ValueError):
        limit_open_files(pid, limit)


CLEAN_UP_S = 5.0
"""Time for an agent to clean up, in addition to the grace period of its tasks."""
MAX_NOISE = 1000
"""Bytes of a line of a login script that a message quotes."""
MOST_REASON = 1 << 14
"""Characters at the end of what an agent or its ssh said last that are kept."""
DESCRIPTORS = 3
"""Open files of a channel."""
CHUNK = 1 << 16
"""Bytes of one read."""
MAX_LINE = 6 << 20
"""Bytes of a message. The largest that an agent sends is an event of 1 MiB, each byte as one escape sequence."""
OVERHEAD, OF_A_VALUE, OF_A_CHARACTER = 1000, 200, 4
"""Bytes of the Python objects of a small message, and of each value and character at most."""
CLOCK_WAS_SET_S = 1.0
"""A larger difference from the local agent is no latency: the clock was set between the starts of the two."""
MOST_DRIFT = 1e-4
"""How much faster one clock may run than another. Without NTP, that of two computers is up to 4 s per day (5e-5)."""


def _start_agent(argv: Sequence[str]) -> StartedAgent:
    try:
        return StartedAgent(argv)
    except OSError as error:
        raise _start_error(argv[0], error, ": install it, or specify another program") from None


def _start_error(program: str, error: OSError, fix: str = "") -> TfdistError:
    limits = {errno.EMFILE: ": raise 'ulimit -n'", errno.EAGAIN: f": {NO_PROCESSES}"}
    return TfdistError(f"cannot run {program!r} ({error.strerror}){limits.get(error.errno or 0, fix)}")


class Channel:
    """One agent's stdin and stdout. Messages from the agent go to the inbox, with this channel as their source.

    `send` never blocks: what the agent does not take at once waits. Times in messages are converted to this machine's
    clock.
    """

    def __init__(self, host: Host, inbox: Inbox, template: Template | None = None) -> None:
        """Start an agent on `host`, or fork it from a template. Its first message will be `Alive`, or `AgentLost`.

        Raises:
            TfdistError: the program that connects to the host cannot be started.
        """
        self.host = host
        self.mark = f"#tfdist-{os.urandom(6).hex()}"
        """The end of the agent's command line on its host."""
        self.last_received = time.monotonic()
        """When something came last, if only a part of a message; infinity while the stream is left unread."""
        self.alive = False
        """A message came."""
        self.behind_s = math.inf
        """How far the host's clock is behind this machine's, at most: the smallest difference between sending and
        receiving a message, so it includes the latency of the fastest one. Infinity before the first one."""
        self.has_package = self.has_copy = False
        """The package of tfdist was sent, and all parts of the copy."""
        self.silent = False
        """Nothing was received for too long, so `close` does not wait for the agent."""
        self._measured_at = 0.0
        self._limit: Limit | None = None
        """Limit of the open files of our process, while it is shielded."""
        self._shield_lock = threading.Lock()
        self.lost = False
        """The stream ended, or the agent said that it leaves. `AgentLost` was or will be sent to the present inbox."""
        self._inbox, self._closing = inbox, False
        self._unsent: deque[memoryview | None] = deque()
        """What the agent has not taken yet; None: the end of the stream."""
        self._writing = threading.RLock()
        self._stdin_open, self._stdin_waits = True, False
        self._reader, self._lines = LineReader(MAX_LINE), deque[bytes]()
        """The lines of the agent's stdout that were read and wait for room in the inbox."""
        self._paused = self._invalid = self._at_end = False
        """Its stdout is left unread until there is room; what comes is no message; its stdout has ended."""
        self._login_output = ""
        """Output of a login script, or why the login failed."""
        self.ended = threading.Event()
        """Set at the end of the agent's stdout."""
        self._last_words = b""
        """The end of the stderr of the agent, or of the ssh that carries it; without a banner before the agent."""
        forked = None if template is None else template.fork_agent()
        argv = agent_argv(host, self.mark)
        self.process = forked or _start_agent(argv)
        """The agent, or what carries its stream."""
        streams = (self.process.stdin, self.process.stdout, self.process.stderr)
        self._stdin, self._stdout, self._stderr = (stream.fileno() for stream in streams)
        for descriptor in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(descriptor, False)
        try:
            STREAMS.call(self._read, self._stdout)
            STREAMS.call(self._read_stderr, self._stderr)
        except (OSError, TfdistError) as error:
            with STREAMS.lock:
                STREAMS.forget(self._stdout, self._stderr)
                self.process.signal(signal.SIGKILL)
                for stream in streams:
                    stream.close()
            self.process.reap()
            raise (_start_error(argv[0], error) if isinstance(error, OSError) else error) from None
        if forked is None:
            self.send_encoded(agent_source(host))

    def send(self, message: ToAgent) -> None:
        """Send one message. Does not raise if the agent is gone: the inbox then gets an `AgentLost`."""
        self.send_encoded(encode(message))

    def send_encoded(self, line: bytes) -> None:
        """Send a message that is a line already: one that many hosts get is in memory once."""
        with self._writing:
            if self._stdin_open:
                self._unsent.append(memoryview(line))
                self._write()

    def deliver_to(self, inbox: Inbox) -> None:
        """Send what arrives from now on to another inbox."""
        self._inbox = inbox
        self._resume()  # the former one may never have room again

    def shield(self, wanted: bool) -> None:
        """Keep our process from killing the agent on SIGTERM, if it is of that kind, or stop doing so.

        Our process needs a connection to learn of the end of the agent.
        """
        if not self.host.needs_shield or not isinstance(self.process, StartedAgent):
            return
        with self._shield_lock:
            if wanted and not (self.lost or self._closing):
                self._limit = self._limit or shield(self.process.pid)
            elif self._limit is not None:
                limit, self._limit = self._limit, None
                unshield(self.process.pid, limit)

    def close_stdin(self) -> None:
        """Make the agent clean up its host and exit, after all messages; do not wait for it."""
        self._closing = True
        self.shield(False)
        with self._writing:
            self._unsent.append(None)
            self._write()
        self._resume()

    def close(self, timeout_s: float) -> None:
        """Make the agent exit and wait until it has cleaned up; after `timeout_s`, kill our end of the connection.

        Does not wait for an agent that never sent anything (it has nothing to clean up) or that is silent.
        """
        self.close_stdin()
        if self.silent or not self.alive:
            timeout_s = 0.0
        deadline = time.monotonic() + timeout_s
        self.ended.wait(timeout_s)
        if not self.ended.is_set() or not self._exited(deadline):
            for number in (signal.SIGTERM, signal.SIGKILL):
                self.process.signal(number)
                self._exited(time.monotonic() + 1.0)
        self.ended.wait(5.0)
        with STREAMS.lock:
            self._end_stdin()
            STREAMS.forget(self._stdout, self._stderr)
            self._paused = False
            self.process.stdout.close()
            self.process.stderr.close()
        self.process.reap()

    def _exited(self, deadline: float) -> bool:
        while not self.process.exited():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)
        return True

    # --- the agent's stdin

    def _write(self) -> None:
        """Write what the agent takes now; the rest once it takes more."""
        with self._writing:
            try:
                while self._unsent and self._stdin_open:
                    data = self._unsent[0]
                    if data is None:
                        self._end_stdin()
                        return
                    written = os.write(self._stdin, data)
                    if written < len(data):
                        self._unsent[0] = data[written:]
                    else:
                        self._unsent.popleft()
            except BlockingIOError:
                if not self._stdin_waits:
                    self._wait_for_stdin()
                return
            except OSError:  # the agent is gone, which the end of its stdout tells
                self._end_stdin()
                return
            if self._stdin_waits:
                self._stdin_waits = False
                STREAMS.forget(self._stdin)

    def _wait_for_stdin(self) -> None:
        try:
            STREAMS.call(self._write, self._stdin, writable=True)
            self._stdin_waits = True
        except OSError:  # the system watches no more descriptors
            self._end_stdin()

    def _end_stdin(self) -> None:
        with self._writing:
            self._unsent.clear()
            if self._stdin_open:
                self._stdin_open = self._stdin_waits = False
                STREAMS.forget(self._stdin)
                with contextlib.suppress(OSError):
                    self.process.stdin.close()

    # --- its stdout and stderr, read by the thread of all streams; `_resume` is called by others, too

    def _read(self) -> None:
        try:
            chunk = os.read(self._stdout, CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            chunk, self._login_output = b"", error.strerror or ""
        if chunk:  # the end is no message: a loss has the time of the last one
            self.last_received = time.monotonic()
            self._lines.extend(self._reader.feed(chunk))
        else:
            self._at_end = True
            self._lines.extend(filter(None, [bytes(self._reader.rest)]))
        self._take_lines()

    def _take_lines(self) -> None:
        """Take the lines for which the inbox has room. Without room, nothing more is read until there is."""
        while self._lines:
            line = self._lines.popleft()
            if self._invalid:  # read on: an agent that cleans up must not block
                continue
            try:
                if not self._receive(line):
                    self._lines.appendleft(line)
                    self._pause()
                    return
            except Exception as error:  # also a mistake of ours, which must not end the thread of all agents
                if self.alive or not isinstance(error, ValueError):
                    self._invalid = True
                    self._report_loss(str(error) if isinstance(error, ValueError) else repr(error))
                    self.close_stdin()
                else:
                    self._login_output = line[:MAX_NOISE].decode(errors="replace").strip() or self._login_output
        if self._at_end:
            STREAMS.forget(self._stdout, self._stderr)
            self._drain_stderr()
            self._report_loss(
                self._last_words.decode(errors="replace").strip() or self._login_output or "its stream ended"
            )
            self.ended.set()

    def _pause(self) -> None:
        self._paused = True
        self.last_received = math.inf
        STREAMS.forget(self._stdout)
        self._inbox.when_room(self._resume)

    def _resume(self) -> None:
        with STREAMS.lock:
            if not self._paused:
                return
            self._paused = False
            self.last_received = time.monotonic()
            if not self._at_end:
                try:
                    STREAMS.call(self._read, self._stdout)  # before the lines: it may pause again
                except OSError as error:  # the system watches no more descriptors
                    self._at_end, self._login_output = True, error.strerror or ""
            self._take_lines()

    def _read_stderr(self) -> None:
        if not self._keep_stderr():
            STREAMS.forget(self._stderr)

    def _keep_stderr(self) -> bool:
        """Read what was written to stderr, and keep its end; returns False at the end of the stream."""
        try:
            data = os.read(self._stderr, CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._last_words = (self._last_words + data)[-MOST_REASON:]
        return bool(data)

    def _drain_stderr(self) -> None:
        """Read what is in the pipe now: a shared connection of ssh (ControlPersist) may keep it open for long."""
        poll = select.poll()
        poll.register(self._stderr, select.POLLIN)
        for _ in range(16):  # a pipe holds at most 1 MiB (fs.pipe-max-size)
            if not poll.poll(0) or not self._keep_stderr():
                return

    def _receive(self, line: bytes) -> bool:
        """Take a message; returns False, and does nothing, if the inbox has no room for it."""
        if len(line) >= MAX_LINE:
            raise ValueError(f"a line of more than {MAX_LINE >> 20} MiB from the agent")
        message = decode(line)
        values = sum(map(line.count, (b",", b"[", b"{"))) if isinstance(message, Event) else 0  # at most
        size = OVERHEAD + OF_A_CHARACTER * len(line) + OF_A_VALUE * values
        if not self._closing and not self._inbox.has_room(size):
            return False
        if isinstance(message, Leaving):
            self._report_loss(message.reason)
            return True
        if isinstance(message, Alive) and not self.alive:
            self._drain_stderr()
            self._last_words = b""  # a banner
        if isinstance(message, Alive | Heartbeat):
            now = event_time()
            self.behind_s = updated_offset(self.behind_s, now - self._measured_at, now - message.time)
            self._measured_at, self.alive = now, True
        if isinstance(message, Timed) and (not self.host.local or abs(self.behind_s) > CLOCK_WAS_SET_S):
            message = replace(message, time=message.time + self.behind_s)
        if not self._closing:  # else nobody waits for it, and the inbox may be full
            self._inbox.put(self.host, message, size)
        return True

    def _report_loss(self, reason: str) -> None:
        known = self.lost
        self.lost = True  # before the inbox is read: see `Fleet.add`
        self.shield(False)
        if not known:
            heard_at = event_time() - max(0.0, time.monotonic() - self.last_received)
            self._inbox.put(self.host, AgentLost(self.host.name, plain(reason[-MOST_REASON:]), heard_at))


def updated_offset(behind_s: float, elapsed_s: float, difference_s: float) -> float:
    """How far a clock is behind, at most: the smallest difference so far, or a later one if the clocks drift apart.

    Args:
        behind_s: the same before.
        elapsed_s: since then.
        difference_s: between sending and receiving a message now.
    """
    return min(behind_s + MOST_DRIFT * elapsed_s, difference_s)


@contextlib.contextmanager
def heartbeats(channels: Mapping[Host, Channel], interval_s: float) -> Iterator[None]:
    """Send heartbeats to the agents on other hosts, from a thread, so that nothing can delay them.

    Channels may be added meanwhile.

    The local agent gets none: its stream ends if the launcher dies, and a suspended launcher (Ctrl-Z) should not end
    a training.
    """
    stopped = threading.Event()

    def send_all() -> None:
        while not stopped.wait(interval_s):
            line = encode(Heartbeat(event_time()))
            for channel in list(channels.values()):
                if not channel.host.local:
                    channel.send_encoded(line)

    thread = start_thread(send_all, "heartbeats")
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@dataclass
class SilenceDetector:
    """Finds agents on other hosts that have sent nothing for `limit_s` seconds. Times are monotonic.

    If checks pause for longer than half the limit (launcher suspended, or blocked by the console), the limit starts
    again. The local agent is exempt: its stream ends if it dies.
    """

    limit_s: float
    last_check: float = field(default_factory=time.monotonic)
    resumed_at: float = -math.inf

    def newly_silent(self, channels: Iterable[Channel], now: float) -> list[tuple[Channel, AgentLost]]:
        """Agents that have passed their deadline since the last call. Marks their channels as silent."""
        if now - self.last_check > self.limit_s / 2:
            self.resumed_at = now
        self.last_check = now
        expired = [channel for channel in channels if now >= self.deadline(channel)]
        for channel in expired:
            channel.silent = True
        heard_at = event_time() - self.limit_s
        reason = f"no message for {self.limit_s:g} s"
        return [(channel, AgentLost(channel.host.name, reason, heard_at)) for channel in expired]

    def deadline(self, channel: Channel) -> float:
        """When the agent counts as lost if it sends nothing more; infinity if it is local or already lost."""
        if channel.host.local or channel.silent:
            return math.inf
        return max(channel.last_received, self.resumed_at) + self.limit_s
