"""The agent: one process on every host of a job. It reserves ports, starts tasks, relays their output and stops them.

The launcher sends the modules of this package to a Python on the host (`bootstrap.py`, `loader.py`); tfdist need not be
installed there. Agent and launcher then exchange JSON, one object per line, over the agent's stdin and stdout
(`messages.py` is the launcher's side). One thread and one `select` do everything, except what may take long. A second
process (`fork_reaper`) kills what is left if the agent is killed, a third if both are.
"""

import contextlib
import json
import math
import os
import resource
import selectors
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from tfdist.launch.agent_program import processes, stacks, system
from tfdist.launch.agent_program.counters import counters as count
from tfdist.launch.agent_program.counters import session_cpu_s
from tfdist.launch.agent_program.description import KernelLog, describe, oom_kills
from tfdist.launch.agent_program.folders import UnsafeFolderError
from tfdist.launch.agent_program.gpus import fullest_gpu, with_cusolver
from tfdist.launch.agent_program.json_lines import LineReader, to_line
from tfdist.launch.agent_program.template import AGENT_VARIABLE, runs_module, without_working_folder
from tfdist.launch.agent_program.text import MAX_VALUES, end_of_characters, too_many_values, why_refused

HEARTBEAT_S = 2.0
"""Send a heartbeat after this time without another message."""
CHUNK = 1 << 16
"""Bytes per read."""
BACKLOG = 1 << 20
"""Limit of unsent bytes. Above it, the tasks' pipes are not read: the tasks block, and our memory stays bounded."""
MAX_EVENT = 1 << 20
"""Bytes of an event. Longer ones are dropped."""
MAX_EVENT_DEPTH = 50
"""Levels of lists and objects. A deeper JSON object could exhaust the stack of a recursive reader."""
PARTIAL_S = 1.0
"""Send an incomplete line of output after this time (progress bars end theirs with a carriage return)."""
STUCK_S = 20.0
"""Report a task that still exists this long after SIGKILL as stuck. On a busy host, its threads take a while to end."""
LAST_MESSAGES_S = 5.0
"""Wait until the launcher has read the last messages."""
LISTEN_POLL_S = 0.5
"""Interval of the checks whether the server of a task listens, and for how long; then with each heartbeat."""
MOST_STACK_HANDLERS = 64
"""Processes of a task that are asked for their stacks."""


class _RunningTask:
    """One attempt of a task."""

    def __init__(self, name: str, attempt: int, pid: int, pipes: dict[str, int], port: int | None) -> None:
        self.name, self.attempt, self.pid, self.port = name, attempt, pid, port
        self.barrier: int | None = pipes.pop("barrier")
        self.pipes = pipes  # those that are still open, by stream
        self.running = True  # until it is reaped; afterwards its pid may belong to another process
        self.exit: dict[str, Any] = {}  # the values of its `Exited`, once it is reaped
        self.launched = False  # it runs its program
        self.listening = self.stopped = self.killed = False
        self.kill_at = self.stuck_at = math.inf
        self.events = LineReader(MAX_EVENT + 1)
        self.partial: dict[str, bytes] = {}  # the incomplete last line of each other stream
        self.partial_due: dict[str, float] = {}
        self.noted_drops: set[str] = set()  # reasons for which events were dropped
        self.oom_kills_before = oom_kills()
        self.stack_handlers: dict[int, int] = {}  # signals that make its processes write their stacks, by pid
        self.stacks_written_at = -math.inf

    def release(self, turn: dict[str, Any] | None) -> None:
        """Open the barrier: the task, which reads the other end of this pipe, gets the turn as a line, or the end."""
        if self.barrier is None:
            return
        if turn is None:
            os.close(self.barrier)
            self.barrier = None
            return
        with contextlib.suppress(OSError):  # the task has exited, or never reads
            os.write(self.barrier, to_line(turn))


class Agent:
    """The event loop. A method `_do_<kind>` handles each message; `messages.py` says what the messages mean."""

    def __init__(self, temporary: str) -> None:
        self.temporary = temporary  # a folder that does not exist yet
        self.parent = os.getppid()
        self.grace_s, self.launcher_timeout_s, self.kill_wait_s = 5.0, math.inf, 0.0  # until `Configure`
        self.clean_up_grace_s: float | None = None  # that of the last `Stop`, if no task was started since
        self.selector = selectors.EpollSelector()
        self.task_selector = selectors.EpollSelector()  # nested in the other one, so reading all tasks can be paused
        self.tasks: dict[str, _RunningTask] = {}  # the last attempt of each
        self.by_pid: dict[int, _RunningTask] = {}  # those not reaped
        self.ending: list[_RunningTask] = []  # stopped tasks that are reaped, while others of their groups still run
        self.terminated: set[int] = set()  # orphans that were sent SIGTERM
        self.unkillable: set[int] = set()  # children that no longer matter
        self.reserved_sockets: list[socket.socket] = []
        self.reader = LineReader()
        self.unsent = bytearray()
        self.last_received = self.last_sent = time.monotonic()
        self.listen_poll_at = 0.0  # when to check again whether servers listen
        self.finished = self.disconnected = False
        self.signal_received = ""
        self.leave_at, self.has_reported = math.inf, False  # after a SIGTERM from a scheduler
        self.package = ""  # the folder of the unpacked tfdist package, if the launcher sent it
        self.working = ""  # the folder in which tasks run, once `Prepare` has found it
        self.probe_server: Any = None
        self.kernel_log = KernelLog()
        self.replies: list[tuple[str, dict[str, Any]]] = []  # from threads and signals, to be sent by the event loop

    def run(self) -> None:
        """Serve until the launcher sends `Finish`, disconnects or times out; then clean up the host."""
        processes.become_subreaper(self.temporary)
        self._watch_signals()
        for stream in (0, 1):
            os.set_blocking(stream, False)
        self.selector.register(0, selectors.EVENT_READ, self._receive)
        self.selector.register(self.task_selector, selectors.EVENT_READ, self._relay_all)
        try:
            self.unsent += b"\n"  # ends a partial line that a login script may have printed
            self._send("alive", time=system.event_time())
            os.mkdir(self.temporary, 0o700)
            self._send_later("hello", lambda: {"description": describe()})
            while not self.finished:
                self._step()
        except Exception as error:
            self._send("leaving", reason=f"{type(error).__name__}: {error}")
            raise
        finally:
            self._clean_up()

    def _step(self, at_most_s: float = HEARTBEAT_S) -> None:
        if not processes.is_subreaper():  # no signal tells that orphans or our parent have ended
            self.finished = self.finished or os.getppid() != self.parent
            if self.ending:
                self._reap()
                at_most_s = min(at_most_s, processes.POLL_S)
        for key, _ in self.selector.select(max(0.0, min(at_most_s, self._due() - time.monotonic()))):
            key.data()
        now = time.monotonic()
        self._kill_due(now)
        self._send_partial_lines(now)
        self._report_listening(now)
        if now - self.last_sent >= HEARTBEAT_S:
            self._send("heartbeat", time=system.event_time())
        if not self.finished and now - self.last_received >= self.launcher_timeout_s:
            self._send("leaving", reason=f"no message from the launcher for {self.launcher_timeout_s:g} s")
            self._disconnect()
        if now >= self.leave_at:
            self.signal_received = "SIGTERM"
            self.finished = True
            self.leave_at = math.inf

    def _due(self) -> float:
        due = [self.last_sent + HEARTBEAT_S, self.leave_at]
        for task in self._existing():
            due += [task.kill_at, task.stuck_at, *task.partial_due.values()]
        if any(_awaits_server(task) for task in self.by_pid.values()):
            due.append(self.listen_poll_at)
        if not self.finished:
            due.append(self.last_received + self.launcher_timeout_s)
        return min(due)

    # --- the stream to the launcher

    def _receive(self) -> None:
        try:
            chunk = os.read(0, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self.last_received = time.monotonic()
        if not chunk:  # the launcher is gone
            self.finished = True
            self.selector.unregister(0)
        for line in self.reader.feed(chunk):
            message = json.loads(line)
            getattr(self, "_do_" + message.pop("kind"))(**message)

    def _send(self, kind: str, **values: Any) -> None:
        if not self.disconnected:
            self.unsent += to_line({"kind": kind, **values})
            self._flush()
        self.last_sent = time.monotonic()

    def _report(self, task: _RunningTask, kind: str, **values: Any) -> None:
        self._send(kind, task=task.name, attempt=task.attempt, **values)

    def _send_later(self, kind: str, compute: Callable[[], dict[str, Any]], **values: Any) -> None:
        """Send a message of which some values are computed in a thread, because that may take long."""

        def run() -> None:
            try:
                self.replies.append((kind, {**values, **compute()}))
            except Exception as error:
                self.replies.append(("leaving", {"reason": f"{type(error).__name__}: {error}"}))
            with contextlib.suppress(BlockingIOError):  # full: it wakes up anyway
                self.wake_sockets[1].send(b"\0")

        try:
            threading.Thread(target=run, name=kind, daemon=True).start()
        except RuntimeError:  # no more threads
            run()

    def _flush(self) -> None:
        # Writes without blocking. The rest follows when the stream is writable; a large rest pauses reading of tasks.
        try:
            del self.unsent[: os.write(1, self.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._disconnect()
        self._watch(1, selectors.EVENT_WRITE, self._flush, bool(self.unsent))
        self._watch(self.task_selector.fileno(), selectors.EVENT_READ, self._relay_all, len(self.unsent) < BACKLOG)

    def _disconnect(self) -> None:
        # Nothing is sent any more, but the tasks' pipes are read, so that tasks can end.
        self.finished = self.disconnected = True
        self.unsent.clear()
        self._watch(1, selectors.EVENT_WRITE, self._flush, False)
        self._watch(self.task_selector.fileno(), selectors.EVENT_READ, self._relay_all, True)

    def _watch(self, descriptor: int, events: int, callback: Callable[[], None], enabled: bool) -> None:
        registered = descriptor in self.selector.get_map()
        if enabled and not registered:
            self.selector.register(descriptor, events, callback)
        elif registered and not enabled:
            self.selector.unregister(descriptor)

    # --- messages from the launcher

    def _do_configure(self, grace_s: float, launcher_timeout_s: float, kill_wait_s: float) -> None:
        self.grace_s, self.launcher_timeout_s, self.kill_wait_s = grace_s, launcher_timeout_s, kill_wait_s

    def _do_heartbeat(self, time: float) -> None:
        return  # `_receive` notes when a message came

    def _do_finish(self) -> None:
        self.finished = True

    def _do_prepare(self, request: int, package: str, cwd: str, home_fallback: bool, script: str) -> None:
        def prepare() -> dict[str, Any]:
            home, requested = os.path.expanduser("~"), os.path.expanduser(cwd)
            if package:
                import base64  # these three are not needed on the launcher's own host
                import io
                import tarfile

                self.package = os.path.join(self.temporary, "package")
                with tarfile.open(fileobj=io.BytesIO(base64.b64decode(package))) as archive:
                    archive.extractall(self.package)
            fallback = home if home_fallback and os.path.isdir(home) else ""
            actual = requested if os.path.isdir(requested) else fallback
            digest = ""
            self.working = actual
            with contextlib.suppress(OSError):
                if script:
                    import hashlib

                    with open(os.path.join(actual, script), "rb") as file:
                        digest = hashlib.sha256(file.read()).hexdigest()
            return {"requested": requested, "actual": actual, "digest": digest}

        self._send_later("prepared", prepare, request=request)

    def _do_end_agent(self, request: int, mark: str, seconds: float) -> None:
        self._send_later("agent_ended", lambda: {"reason": processes.end_agent(mark, seconds)}, request=request)

    def _do_reserve(self, request: int, ports: list[int], token: str) -> None:
        self._release_ports()
        port = 0
        try:
            for port in ports:
                self.reserved_sockets.append(system.reserve(port))
            numbers = [reserved.getsockname()[1] for reserved in self.reserved_sockets]
            if token:
                from tfdist.launch.agent_program.probe import ProbeServer  # only jobs on other hosts need it

                self.probe_server = ProbeServer(numbers, token)
        except OSError as error:
            wrong = error.filename or port
            self._send("not_reserved", request=request, port=wrong, reason=os.strerror(error.errno or 0))
            return
        self._send("reserved", request=request, ports=numbers)

    def _release_ports(self) -> None:
        self._do_close_probe()
        while self.reserved_sockets:
            self.reserved_sockets.pop().close()

    def _do_close_probe(self) -> None:
        if self.probe_server is not None:
            self.probe_server.close()
            self.probe_server = None

    def _do_dial(self, request: int, targets: list[tuple[str, int]], token: str, timeout_s: float) -> None:
        from tfdist.launch.agent_program.probe import dial_all

        self._send_later("dial_result", lambda: {"failures": dial_all(targets, token, timeout_s)}, request=request)

    def _do_measure_link(self, request: int, address: str, port: int, token: str, seconds: float) -> None:
        from tfdist.launch.agent_program.probe import measure_link

        self._send_later("link_speed", lambda: measure_link(address, port, token, seconds), request=request)

    def _do_check_folder(self, request: int, path: str, token: str, action: str) -> None:
        # in a thread: a network file system may take long to answer
        self._send_later(
            "folder_checked",
            lambda: {"reason": system.check_folder(path, token, action, self.working)},
            request=request,
        )

    def _do_start(
        self,
        task: str,
        attempt: int,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        cores: list[int],
        port: int | None,
    ) -> None:
        earlier = self.tasks.get(task)
        try:
            if self.finished:
                raise RuntimeError("the agent is leaving")
            if earlier is not None:
                if earlier.running or earlier in self.ending:
                    raise RuntimeError(f"its attempt {earlier.attempt} still runs")
                processes.kill_groups(processes.orphans(earlier.pid))
            self.clean_up_grace_s = None
            pid, pipes = self._fork(argv, env, cwd, cores)
            running = _RunningTask(task, attempt, pid, pipes, port)
            self.tasks[task] = self.by_pid[pid] = running
            for stream, descriptor in pipes.items():
                os.set_blocking(descriptor, False)
                self.task_selector.register(descriptor, selectors.EVENT_READ, (running, stream))
        except (OSError, RuntimeError) as error:  # for example, too many open files or processes
            fix = "; raise 'ulimit -u' there" if isinstance(error, BlockingIOError) else ""
            self._send("not_started", task=task, attempt=attempt, reason=f"{error}{fix}")

    def _do_inspect(self, request: int, tasks: list[str], gpus: bool, counters: bool) -> None:
        running = {task.name: task.pid for task in self.by_pid.values() if task.name in tasks}
        of_process: dict[str, Callable[[int], Any]] = {
            "states": system.process_state,
            "waits": system.wait_channel,
            "cpu_s": system.cpu_time,
            "resident_bytes": system.resident_bytes,
        }
        if counters:
            pids = [task.pid for task in self.by_pid.values()]
            used = session_cpu_s()
            of_process["counters"] = lambda pid: count(pid, pids, used)
        values = {key: {name: read(pid) for name, pid in running.items()} for key, read in of_process.items()}
        usage = system.host_usage()
        now = system.event_time()

        def host() -> dict[str, Any]:
            return {"host": {**usage, **(fullest_gpu() if gpus else {})}}

        self._send_later("inspected", host, request=request, time=now, **values)

    def _do_dump_stacks(self, request: int, tasks: list[str], full: bool) -> None:
        running = [task for task in self.by_pid.values() if task.name in tasks]
        asked_at: dict[str, float] = {}  # of the tasks that write their stacks
        for task in running:
            for pid, number in task.stack_handlers.items():
                if stacks.request_stacks(task.pid, pid, number):
                    self._send_text(task, "stacks", stacks.stack_header("faulthandler", pid).encode())
                    asked_at.setdefault(task.name, time.monotonic())
        deadline = time.monotonic() + stacks.DUMP_S

        def methods() -> dict[str, Any]:
            found = {task.name: self._collect_stacks(task, asked_at.get(task.name), deadline, full) for task in running}
            return {"methods": found}

        self._send_later("stacks_dumped", methods, request=request)

    def _collect_stacks(self, task: _RunningTask, asked_at: float | None, deadline: float, full: bool) -> str:
        """Wait in a thread for the task's own stacks, or find others; return the method, or why there are none."""
        try:
            own = asked_at is not None and stacks.wait_for_stacks(lambda: task.stacks_written_at, asked_at)
            if own and not full:
                return "faulthandler"
            method, text = stacks.examine_stacks(task.pid, deadline, full)
        except (OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        values = {"task": task.name, "attempt": task.attempt, "stream": "stacks"}
        self.replies += [("output", {**values, "text": text[at : at + CHUNK]}) for at in range(0, len(text), CHUNK)]
        return "faulthandler" if own else method

    def _do_stop(self, tasks: list[str], grace_s: float, keeps_barrier: bool) -> None:
        self.clean_up_grace_s = grace_s
        for name in tasks:
            if name in self.tasks:
                self._stop(self.tasks[name], grace_s, keeps_barrier)

    def _do_release(self, attempt: int, turn: dict[str, Any] | None) -> None:
        for task in self.tasks.values():
            if task.attempt == attempt:
                task.release(turn)

    # --- tasks

    def _fork(self, argv: list[str], env: dict[str, str], cwd: str, cores: list[int]) -> tuple[int, dict[str, int]]:
        """Fork a task in a session and process group of its own; return its pid and our ends of its pipes.

        Does not wait until the task runs its program, because it could hang in a folder that does not answer: the pipe
        `failure` tells. Fork in the main thread: the kernel kills a task when the thread that forked it ends
        (PR_SET_PDEATHSIG).
        """
        inner: dict[str, int] = {}  # the task's ends of the pipes
        outer: dict[str, int] = {}
        try:
            for stream in ("failure", "stdout", "stderr", "events", "stacks"):
                outer[stream], inner[stream] = os.pipe()
            inner["barrier"], outer["barrier"] = os.pipe()
            os.set_blocking(outer["barrier"], False)
            # TMPDIR is our own folder unless `env` sets it: TensorFlow leaves files there if killed; we delete them.
            environment = {"PYTHONUNBUFFERED": "1", **os.environ, "TMPDIR": self.temporary, **env}
            environment = with_cusolver(environment) | {AGENT_VARIABLE: os.path.basename(self.temporary)}
            if self.package:
                paths = (self.package, environment.get("PYTHONPATH"))
                environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            if runs_module(argv):
                environment = without_working_folder(environment)
            environment |= {processes.descriptor_variable(name): str(inner[name]) for name in processes.INHERITED}
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                pid = os.fork()
                if pid == 0:
                    processes.run_program(argv, environment, cwd, cores, inner)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        except OSError:
            for descriptor in outer.values():
                os.close(descriptor)
            raise
        finally:
            for descriptor in inner.values():
                os.close(descriptor)
        return pid, outer

    def _report_listening(self, now: float) -> None:
        waiting = [task for task in self.by_pid.values() if _awaits_server(task)]
        if not waiting or now < self.listen_poll_at:
            return
        ports = system.listening_ports()
        for task in waiting:
            if task.port in ports:
                task.listening = True
                self._report(task, "listening", time=system.event_time())
        self.listen_poll_at = now + LISTEN_POLL_S

    # --- output and events of tasks

    def _relay_all(self) -> None:
        for key, _ in self.task_selector.select(0):
            self._relay(*key.data)

    def _relay(self, task: _RunningTask, stream: str) -> bool:
        """Read one chunk of a stream and send what is complete; return whether there was anything to read."""
        if stream != "failure" and "failure" in task.pipes:
            self._relay(task, "failure")  # the start is reported first
        try:
            chunk = os.read(task.pipes[stream], CHUNK)
        except BlockingIOError:
            return False
        if stream == "stacks" and chunk:
            task.stacks_written_at = time.monotonic()
        if not chunk or stream == "failure":
            self.task_selector.unregister(task.pipes[stream])
            os.close(task.pipes.pop(stream))
        if stream == "failure" and chunk:
            self._report(task, "not_started", reason=chunk.decode(errors="replace"))
        elif stream == "failure":  # the end: it runs its program
            task.launched = True
            self._report(task, "started", pid=task.pid, time=system.event_time())
        elif stream == "events":
            for line in task.events.feed(chunk or b"\n"):
                self._relay_event(task, line)
        else:
            self._relay_text(task, stream, chunk)
        return bool(chunk)

    def _relay_text(self, task: _RunningTask, stream: str, chunk: bytes) -> None:
        """Send whole lines; keep an incomplete one for `PARTIAL_S`, unless it is a chunk long."""
        text = task.partial.pop(stream, b"") + chunk
        end = text.rfind(b"\n") + 1 if chunk else len(text)
        if len(text) - end >= CHUNK:
            end = end_of_characters(text)
        self._send_text(task, stream, text[:end])
        if end:
            task.partial_due.pop(stream, None)
        if end < len(text):
            task.partial[stream] = text[end:]
            task.partial_due.setdefault(stream, time.monotonic() + PARTIAL_S)

    def _send_partial_lines(self, now: float) -> None:
        for task in self._existing():
            for stream in [stream for stream, due in task.partial_due.items() if now >= due]:
                del task.partial_due[stream]
                text = task.partial.pop(stream)
                end = end_of_characters(text)
                self._send_text(task, stream, text[:end])
                task.partial[stream] = text[end:]

    def _send_text(self, task: _RunningTask, stream: str, text: bytes) -> None:
        if text:
            decoded = text.decode("utf-8", "surrogateescape")  # bytes that are not UTF-8 travel as surrogates
            self._report(task, "output", stream=stream, text=decoded)

    def _relay_event(self, task: _RunningTask, line: bytes) -> None:
        if len(line) > MAX_EVENT or too_many_values(line):
            most = "1 MiB" if len(line) > MAX_EVENT else f"{MAX_VALUES:,} values"
            self._note_drop(task, f"it has more than {most}")
            return
        try:
            event = dict(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            return
        refusal = why_refused(event, MAX_EVENT_DEPTH)
        if refusal:
            self._note_drop(task, refusal, event.get("event"))
            return
        if event.get("event") == "stacks":
            pid, number = event.get("pid"), event.get("signal")
            full = len(task.stack_handlers) >= MOST_STACK_HANDLERS
            if type(pid) is type(number) is int and pid > 1 and 0 < number <= signal.SIGRTMAX and not full:
                task.stack_handlers[pid] = number
        self._report(task, "event", time=system.event_time(), event=event)

    def _note_drop(self, task: _RunningTask, reason: str, name: Any = None) -> None:
        """Write why an event was dropped to the stderr of the task: one line for each reason."""
        if reason not in task.noted_drops:
            task.noted_drops.add(reason)
            event = f"the event {name[:50]!a}" if isinstance(name, str) else "an event"
            self._relay_text(task, "stderr", f"tfdist: {event} was dropped: {reason}\n".encode())

    # --- the end of tasks

    def _stop(self, task: _RunningTask, grace_s: float, keeps_barrier: bool = False) -> None:
        # A task gets SIGTERM only once. A later request can only shorten the time until SIGKILL.
        if not keeps_barrier:
            task.release(None)
        if task not in self._existing():
            return
        if not task.stopped and grace_s > 0:
            processes.terminate(task.pid)
        if not task.killed:
            task.kill_at = min(task.kill_at, time.monotonic() + grace_s)
        task.stopped = True

    def _existing(self) -> list[_RunningTask]:
        """Those that run, and those that are reaped while others of their groups still run."""
        return [*self.by_pid.values(), *self.ending]

    def _kill_due(self, now: float) -> None:
        for task in self._existing():
            if now >= task.kill_at:
                task.kill_at = math.inf
                task.killed = True
                task.stuck_at = now + STUCK_S
                processes.kill_groups([task.pid] if task.running else processes.orphans(task.pid))
            if now >= task.stuck_at:
                self._check_stuck(task, now)

    def _check_stuck(self, task: _RunningTask, now: float) -> None:
        self._reap()
        if task not in self._existing():
            return
        task.stuck_at = math.inf
        if task.running:
            self.unkillable.add(task.pid)
            state = system.process_state(task.pid)
            wait = system.wait_channel(task.pid)
            self._report(task, "stuck", time=system.event_time(), state=state, wait=wait)
        else:
            self.unkillable |= processes.orphans(task.pid)
            self._finish(task)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                pid, status, usage = ended
                self.terminated.discard(pid)
                self.unkillable.discard(pid)
                system.ABANDONED.pop(pid, None)
                if pid in self.by_pid:
                    self._keep_exit(self.by_pid.pop(pid), os.waitstatus_to_exitcode(status), usage)
        for task in [task for task in self.ending if not task.stopped or not processes.orphans(task.pid)]:
            self._finish(task)

    def _keep_exit(self, task: _RunningTask, code: int, usage: resource.struct_rusage) -> None:
        # If a stopped task was a shell, its program still has the rest of the grace period to save and to log.
        task.running = False
        task.release(None)
        kills = max(0, oom_kills() - task.oom_kills_before)
        shot = code in (-signal.SIGKILL, 128 + signal.SIGKILL) and not task.killed  # itself, or the program in a shell
        task.exit = {
            "code": code,
            "time": system.event_time(),
            "peak_memory_bytes": usage.ru_maxrss * 1024,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "oom_kills": kills,
            "kernel_log": self.kernel_log.find(task.pid, kills > 0) if shot else "",
        }
        self.ending.append(task)
        if task.stopped:
            self._terminate_orphans(task.pid)
            task.kill_at = time.monotonic() if task.killed else task.kill_at
            task.stuck_at = math.inf

    def _finish(self, task: _RunningTask) -> None:
        # The exit is sent after all output of the task.
        self.ending.remove(task)
        for stream in list(task.pipes):
            for _ in range(16):  # a pipe holds at most 1 MiB (fs.pipe-max-size)
                if stream not in task.pipes or not self._relay(task, stream):
                    break
        for stream in ("stdout", "stderr", "stacks"):  # a pipe may be open in another process
            self._send_text(task, stream, task.partial.pop(stream, b""))
        if task.launched:
            self._report(task, "exited", **task.exit)

    def _terminate_orphans(self, group: int | None = None) -> None:
        for pid in processes.orphans(group) - self.by_pid.keys() - self.terminated:
            self.terminated.add(pid)
            processes.terminate(pid)

    # --- signals, and the agent's own end

    def _watch_signals(self) -> None:
        # SIGCHLD wakes the select; the usual signals finish the agent as the launcher would.
        receive, send = self.wake_sockets = socket.socketpair()
        for end in self.wake_sockets:
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._take_signal)
        signal.set_wakeup_fd(send.fileno(), warn_on_full_buffer=False)
        self.selector.register(receive, selectors.EVENT_READ, self._wake)

    def _take_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM and self.kill_wait_s:  # our parent forwards it, so it comes twice
            self.leave_at = min(self.leave_at, time.monotonic() + self.kill_wait_s)
            return
        self.signal_received = signal.Signals(number).name
        self.finished = True

    def _wake(self) -> None:
        self.wake_sockets[0].recv(CHUNK)
        self._reap()
        if self.leave_at < math.inf and not self.has_reported:  # not in the handler: a second one may interrupt it
            self.has_reported = True
            self._send("terminated")
        while self.replies:
            kind, values = self.replies.pop(0)
            self._send(kind, **values)
            self.finished = self.finished or kind == "leaving"
        processes.kill_groups(system.ABANDONED.keys() & processes.children())

    def _clean_up(self) -> None:
        # As a subreaper, we also inherit orphaned grandchildren, so continue until no child is left.
        grace_s = self.grace_s if self.clean_up_grace_s is None else self.clean_up_grace_s
        if os.getppid() != self.parent:  # said first, so that the tasks' exits count as the consequence
            self._send("leaving", reason="its parent process was killed")
        elif self.signal_received:
            self._send("leaving", reason=f"received {self.signal_received}")
        for task in self.by_pid.values():
            self._stop(task, grace_s)
        kill_at = time.monotonic() + grace_s
        until = kill_at + processes.CLEAN_UP_KILL_S
        while (left := processes.children() - self.unkillable - system.ABANDONED.keys()) and time.monotonic() < until:
            self._terminate_orphans()
            if time.monotonic() >= kill_at:
                processes.kill_groups(left)
            self._step(0.02)
        system.remove_folder(self.temporary)
        self._release_ports()
        until = time.monotonic() + LAST_MESSAGES_S
        while self.unsent and time.monotonic() < until:
            self._step()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # ends the stream even if a thread of ours cannot end


def _awaits_server(task: _RunningTask) -> bool:
    return task.port is not None and task.launched and not task.listening


def main() -> None:
    """Run an agent to its end, and end the process."""
    warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # Python 3.12 warns of a fork with threads
    try:
        folder = os.path.join(system.temporary_root(), f"tfdist-{os.urandom(6).hex()}")
    except UnsafeFolderError as error:
        os.write(2, f"{error}\n".encode(errors="replace"))
        os._exit(1)
    guard = processes.fork_reaper(folder)
    Agent(folder).run()
    processes.dismiss(guard)
    os._exit(0)  # threads may still wait for something
