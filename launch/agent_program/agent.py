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
import selectors
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from tfdist.launch.agent_program import processes, stacks, system
from tfdist.launch.agent_program.copied import Copied
from tfdist.launch.agent_program.counters import counters as count
from tfdist.launch.agent_program.counters import session_cpu_s
from tfdist.launch.agent_program.description import describe
from tfdist.launch.agent_program.folders import UnsafeFolderError
from tfdist.launch.agent_program.gpus import fullest_gpu, with_cusolver
from tfdist.launch.agent_program.json_lines import LineReader, to_line
from tfdist.launch.agent_program.running_task import CHUNK, RunningTask
from tfdist.launch.agent_program.tasks import Tasks
from tfdist.launch.agent_program.template import AGENT_VARIABLE, runs_module, without_working_folder

HEARTBEAT_S = 2.0
"""Send a heartbeat after this time without another message."""
BACKLOG = 1 << 20
"""Limit of unsent bytes. Above it, the tasks' pipes are not read: the tasks block, and our memory stays bounded."""
LAST_MESSAGES_S = 5.0
"""Wait until the launcher has read the last messages."""


class Agent:
    """The event loop. A method `_do_<kind>` handles each message; `messages.py` says what the messages mean."""

    def __init__(self, temporary: str) -> None:
        self.temporary = temporary  # a folder that does not exist yet
        self.parent = os.getppid()
        self.grace_s, self.launcher_timeout_s, self.kill_wait_s = 5.0, math.inf, 0.0  # until `Configure`
        self.clean_up_grace_s: float | None = None  # that of the last `Stop`, if no task was started since
        self.selector = selectors.EpollSelector()
        self.tasks = Tasks(self._send)  # its selector is nested in the other one, so reading all tasks can be paused
        self.reserved_sockets: list[socket.socket] = []
        self.reader = LineReader()
        self.unsent = bytearray()
        self.last_received = self.last_sent = time.monotonic()
        self.finished = self.disconnected = False
        self.signal_received = ""
        self.leave_at, self.has_reported = math.inf, False  # after a SIGTERM from a scheduler
        self.package_data = ""  # the tfdist package, if the launcher sent it: a compressed tar in base64
        self.package = ""  # the folder in which it is unpacked
        self.copied = Copied(os.path.join(temporary, "copy"))
        self.working = ""  # the folder in which tasks run, once `Prepare` has found it
        self.probe_server: Any = None
        self.replies: list[tuple[str, dict[str, Any]]] = []  # from threads and signals, to be sent by the event loop

    def run(self) -> None:
        """Serve until the launcher sends `Finish`, disconnects or times out; then clean up the host."""
        processes.become_subreaper(self.temporary)
        self._watch_signals()
        for stream in (0, 1):
            os.set_blocking(stream, False)
        self.selector.register(0, selectors.EVENT_READ, self._receive)
        self.selector.register(self.tasks.selector, selectors.EVENT_READ, self.tasks.relay)
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
            if self.tasks.ending:
                self.tasks.reap()
                at_most_s = min(at_most_s, processes.POLL_S)
        for key, _ in self.selector.select(max(0.0, min(at_most_s, self._due() - time.monotonic()))):
            key.data()
        now = time.monotonic()
        self.tasks.act(now)
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
        due = [self.last_sent + HEARTBEAT_S, self.leave_at, self.tasks.due()]
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
        self._watch(self.tasks.selector.fileno(), selectors.EVENT_READ, self.tasks.relay, len(self.unsent) < BACKLOG)

    def _disconnect(self) -> None:
        # Nothing is sent any more, but the tasks' pipes are read, so that tasks can end.
        self.finished = self.disconnected = True
        self.unsent.clear()
        self._watch(1, selectors.EVENT_WRITE, self._flush, False)
        self._watch(self.tasks.selector.fileno(), selectors.EVENT_READ, self.tasks.relay, True)

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

    def _do_package(self, data: str) -> None:
        self.package_data = data

    def _do_copy_part(self, data: str) -> None:
        self.copied.add(data)

    def _do_prepare(self, request: int, cwd: str, home_fallback: bool, script: str, copies: bool) -> None:
        def prepare() -> dict[str, Any]:
            home, requested = os.path.expanduser("~"), os.path.expanduser(cwd)
            if self.package_data:
                import base64  # these three are not needed on the launcher's own host
                import io
                import tarfile

                self.package = os.path.join(self.temporary, "package")
                with tarfile.open(fileobj=io.BytesIO(base64.b64decode(self.package_data))) as archive:
                    archive.extractall(self.package)
                self.package_data = ""
            fallback = home if home_fallback and os.path.isdir(home) else ""
            actual = requested if os.path.isdir(requested) else fallback
            digest = ""
            self.working = actual
            with contextlib.suppress(OSError):
                if script:
                    import hashlib

                    with open(os.path.join(actual, script), "rb") as file:
                        digest = hashlib.sha256(file.read()).hexdigest()
            copied = self.copied.unpack() if copies else {}
            return {"requested": requested, "actual": actual, "digest": digest, **copied}

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

    def _do_find_written(self, request: int) -> None:
        self._send_later("written", self.copied.written, request=request)

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
        try:
            if self.finished:
                raise RuntimeError("the agent is leaving")
            self.tasks.start(task, attempt, argv, self._environment(argv, env), cwd, cores, port)
            self.clean_up_grace_s = None
        except (OSError, RuntimeError) as error:  # for example, too many open files or processes
            fix = "; raise 'ulimit -u' there" if isinstance(error, BlockingIOError) else ""
            self._send("not_started", task=task, attempt=attempt, reason=f"{error}{fix}")

    def _environment(self, argv: list[str], env: dict[str, str]) -> dict[str, str]:
        """The variables of a task, apart from those that name its pipes."""
        # TMPDIR is our own folder unless `env` sets it: TensorFlow leaves files there if killed; we delete them.
        environment = {"PYTHONUNBUFFERED": "1", **os.environ, "TMPDIR": self.temporary, **env}
        environment = with_cusolver(environment) | {AGENT_VARIABLE: os.path.basename(self.temporary)}
        if self.package:
            paths = (self.package, environment.get("PYTHONPATH"))
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return without_working_folder(environment) if runs_module(argv) else environment

    def _do_inspect(self, request: int, tasks: list[str], gpus: bool, counters: bool) -> None:
        running = {task.name: task.pid for task in self.tasks.running(tasks)}
        of_process: dict[str, Callable[[int], Any]] = {
            "states": system.process_state,
            "waits": system.wait_channel,
            "cpu_s": system.cpu_time,
            "resident_bytes": system.resident_bytes,
        }
        if counters:
            pids = [*self.tasks.by_pid]
            used = session_cpu_s()
            of_process["counters"] = lambda pid: count(pid, pids, used)
        values = {key: {name: read(pid) for name, pid in running.items()} for key, read in of_process.items()}
        usage = system.host_usage()
        now = system.event_time()

        def host() -> dict[str, Any]:
            return {"host": {**usage, **(fullest_gpu() if gpus else {})}}

        self._send_later("inspected", host, request=request, time=now, **values)

    def _do_dump_stacks(self, request: int, tasks: list[str], full: bool) -> None:
        running = self.tasks.running(tasks)
        asked_at: dict[str, float] = {}  # of the tasks that write their stacks
        for task in running:
            for pid, number in task.stack_handlers.items():
                if stacks.request_stacks(task.pid, pid, number):
                    task.send_text("stacks", stacks.stack_header("faulthandler", pid).encode())
                    asked_at.setdefault(task.name, time.monotonic())
        deadline = time.monotonic() + stacks.DUMP_S

        def methods() -> dict[str, Any]:
            found = {task.name: self._collect_stacks(task, asked_at.get(task.name), deadline, full) for task in running}
            return {"methods": found}

        self._send_later("stacks_dumped", methods, request=request)

    def _collect_stacks(self, task: RunningTask, asked_at: float | None, deadline: float, full: bool) -> str:
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
        self.tasks.stop(tasks, grace_s, keeps_barrier)

    def _do_release(self, attempt: int, turn: dict[str, Any] | None) -> None:
        self.tasks.release(attempt, turn)

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
        self.tasks.reap()
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
        self.tasks.stop([task.name for task in self.tasks.by_pid.values()], grace_s)
        kill_at = time.monotonic() + grace_s
        until = kill_at + processes.CLEAN_UP_KILL_S
        while (left := self._left()) and time.monotonic() < until:
            self.tasks.terminate_orphans()
            if time.monotonic() >= kill_at:
                processes.kill_groups(left)
            self._step(0.02)
        system.remove_folder(self.temporary)
        self._release_ports()
        until = time.monotonic() + LAST_MESSAGES_S
        while self.unsent and time.monotonic() < until:
            self._step()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # ends the stream even if a thread of ours cannot end

    def _left(self) -> set[int]:
        """The processes that the clean-up has to end."""
        return processes.children() - self.tasks.unkillable - system.ABANDONED.keys()


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
