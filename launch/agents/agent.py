"""The agent: one process on every host of a job. It reserves ports, starts tasks, relays what they say, and kills.

The launcher sends this file's text through a stream and talks to it in JSON, one object a line, over its stdin and
stdout (`messages.py` is the launcher's side of the same conversation). So it is one file, it needs nothing but
Python 3.10, and the host needs nothing of ours. One thread, one `select`; it sleeps when nothing happens.
"""

import ctypes
import glob
import json
import os
import platform
import re
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

HEARTBEAT_S = 2.0
"""How often each side says that it is alive."""
PATIENCE_S = 8.0
"""For another program's answer; the launcher waits 14 s for our hello."""
CHUNK = 1 << 16
BACKLOG = 1 << 20
"""Bytes waiting for the launcher above which tasks' output is left in their pipes, so that they wait, not we."""
MOST_CHUNKS_IN_A_PIPE = 16
"""A pipe holds 1 MiB at most (fs.pipe-max-size)."""
MOST_NESTED = 50
"""Levels of an event of a task; deeper ones would exhaust the stack of whoever reads them."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None)
PACKAGES = ("tensorflow", "tf_keras", "keras", "numpy", "tfdist")


def describe() -> dict[str, Any]:
    """This host, as plain JSON values. TensorFlow is not imported: versions come from the packages' metadata."""
    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": _versions(),
        "cores": sorted(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "memory_free_bytes": _memory_free(),
        "disk_free_bytes": shutil.disk_usage(temporary_root()).free,
        **describe_gpus(),
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "clock": time.time(),
    }


def _versions() -> dict[str, str]:
    """From the names of the .dist-info folders: 30 times faster than importlib.metadata, which parses each file."""
    found: dict[str, str] = {}
    pattern = re.compile(r"([A-Za-z0-9_.]+)-([^-]+)\.dist-info$")
    for folder in sys.path:
        try:
            names = os.listdir(folder)
        except OSError:  # a zip, or not there, or not ours to read: Python passes over it as well
            continue
        for name, version in (match.groups() for match in map(pattern.match, names) if match):
            if name.lower() in PACKAGES:
                found.setdefault(name.lower(), version)
    return found


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory_free() -> int:
    """Bytes that new processes can have: the kernel's MemAvailable, which counts the page cache as free."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def describe_gpus() -> dict[str, Any]:
    """Names of the GPUs that CUDA would show here, and by which each is asked for in CUDA_VISIBLE_DEVICES.

    The driver's own tool is asked, and only where there is a driver: `gpu_devices` is what the kernel's part of it
    shows, `gpus_hidden` how many CUDA_VISIBLE_DEVICES takes away, `driver` empty if the tool does not answer.
    """
    tool, devices = shutil.which("nvidia-smi"), glob.glob("/dev/nvidia[0-9]*")
    rows: list[list[str]] = []
    if tool is not None and devices:
        query = [tool, "--query-gpu=index,uuid,driver_version,name", "--format=csv,noheader"]
        rows = [[cell.strip() for cell in line.split(",", 3)] for line in output_of(query).splitlines()]
        rows = [row for row in rows if len(row) == 4]
    shown = visible_gpus([[index, uuid, name] for index, uuid, _, name in rows], os.environ.get("CUDA_VISIBLE_DEVICES"))
    return {
        "gpus": [name for _, name in shown],
        "gpu_ids": [identifier for identifier, _ in shown],
        "gpus_hidden": max(0, len(rows) - len(shown)),
        "gpu_devices": len(devices),
        "driver": rows[0][2] if rows else "",
    }


def output_of(command: list[str]) -> str:
    """What a program prints; nothing if it takes too long, as nvidia-smi does while the driver hangs."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S).stdout
    except subprocess.TimeoutExpired:
        return ""


def visible_gpus(rows: list[list[str]], visible: str | None) -> list[tuple[str, str]]:
    """(identifier, name) of what CUDA_VISIBLE_DEVICES leaves visible of these GPUs (index, UUID, name), in its order.

    As CUDA reads it: indices, or beginnings of UUIDs; the first that is none of them hides itself and all after it
    (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars).
    """
    if visible is None:
        return [(index, name) for index, _, name in rows]
    shown = []
    for word in map(str.strip, visible.split(",")):
        found = [name for index, uuid, name in rows if word and (word == index or uuid.startswith(word))]
        if not found and not (rows and word.startswith("MIG-")):
            break
        shown.append((word, found[0] if found else "MIG device"))
    return shown


def temporary_root() -> str:
    """Where temporary files belong on this host."""
    wanted = os.environ.get("TMPDIR") or "/tmp"
    return os.path.abspath(wanted) if os.path.isdir(wanted) else "/tmp"


def reserve(port: int) -> socket.socket:
    """Bind `port` (0: any free one) and hold it, not listening, so that nobody else gets it before the task does.

    The task binds the same port beside us: both sides set SO_REUSEPORT (gRPC does with TF_GRPC_REUSE_PORT=true).
    A port that another such holder has would be shared in silence, so a fixed port is first bound without it.

    Raises:
        OSError: the port is in use, or may not be bound.
    """
    if port:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a closed connection's TIME_WAIT is no user
            probe.bind(("", port))
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("", port))
    return held


class RunningTask:
    """A started process, its pipes, and when it will be killed."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", pipes: dict[str, int], barrier: int) -> None:
        self.name, self.process, self.pipes = name, process, pipes
        self.barrier: int | None = barrier
        self.partial: dict[str, bytes] = {}  # the unfinished last line, by stream
        self.kill_at: float | None = None

    def release(self) -> None:
        """Let the task pass the start barrier: it reads the other end."""
        if self.barrier is not None:
            os.close(self.barrier)
            self.barrier = None


class Agent:
    """Everything between the first message and the last."""

    def __init__(self, heartbeat_timeout_s: float = 10.0) -> None:
        self.heartbeat_timeout_s = heartbeat_timeout_s
        self.selector = selectors.EpollSelector()
        self.pipes = (
            selectors.EpollSelector()
        )  # the tasks' output: one descriptor of the other, so it can be paused whole
        self.tasks: dict[str, RunningTask] = {}
        self.by_pid: dict[int, RunningTask] = {}
        self.ports: list[socket.socket] = []
        self.inbox, self.outbox = b"", bytearray()
        self.heard = self.said = time.monotonic()
        self.over = self.cut_off = False
        self.expects_heartbeats = False
        self.temporary = os.path.join(temporary_root(), f"tfdist-{os.urandom(6).hex()}")
        self.package = ""  # the folder with our own package, where it was sent
        self.listener: Any = None
        self.results: list[tuple[str, dict[str, Any]]] = []  # what threads have found out, for the select to say

    def run(self) -> None:
        """Serve until the launcher says finish, goes away, or falls silent; then leave nothing behind."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.watch_signals()
        for stream in (0, 1):
            os.set_blocking(stream, False)
        self.selector.register(0, selectors.EVENT_READ, self.hear)
        self.selector.register(self.pipes, selectors.EVENT_READ, self.relay_ready)
        try:
            os.mkdir(self.temporary, 0o700)
            self.outbox += b"\n"  # ends what a login script may have left on the line
            self.say("hello", **describe())
            while not self.over:
                self.turn()
        except Exception as error:
            self.say("leaving", reason=f"{type(error).__name__}: {error}")
            raise
        finally:
            self.clean_up()

    def turn(self) -> None:
        """One wake-up: whatever is ready, then whatever is due."""
        for key, _ in self.selector.select(self.patience()):
            key.data()
        now = time.monotonic()
        for task in self.tasks.values():
            if task.kill_at is not None and now >= task.kill_at:
                task.kill_at = None
                kill_group(task.process.pid, signal.SIGKILL)
        if now - self.said >= HEARTBEAT_S:
            self.say("heartbeat")
        if self.expects_heartbeats and now - self.heard >= self.heartbeat_timeout_s:
            self.say("leaving", reason=f"it did not hear from the launcher for {self.heartbeat_timeout_s:g} s")
            self.over = self.cut_off = True

    def patience(self) -> float:
        """Seconds until something is due even if nothing happens."""
        due = [self.said + HEARTBEAT_S, *(task.kill_at for task in self.tasks.values() if task.kill_at is not None)]
        due += [self.heard + self.heartbeat_timeout_s] if self.expects_heartbeats else []
        return max(0.0, min(due) - time.monotonic())

    # --- the launcher

    def hear(self) -> None:
        """Do what the launcher says; its end of the stream closing means that it is gone."""
        try:
            chunk = os.read(0, CHUNK)
        except OSError:
            chunk = b""
        self.heard = time.monotonic()
        self.over = self.over or not chunk
        *lines, self.inbox = (self.inbox + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            getattr(self, "do_" + message.pop("kind"))(**message)

    def say(self, kind: str, **values: Any) -> None:
        """Queue one message, and send what the stream takes now."""
        self.outbox += json.dumps({"kind": kind, **values}).encode() + b"\n"
        self.said = time.monotonic()
        self.flush()

    def flush(self) -> None:
        """Send what the stream takes, and be woken for the rest; while much is left, tasks wait with their output."""
        try:
            del self.outbox[: os.write(1, self.outbox)]
        except BlockingIOError:
            pass
        except OSError:
            self.over, self.outbox = True, bytearray()
        self.listen(1, selectors.EVENT_WRITE, self.flush, bool(self.outbox))
        self.listen(self.pipes.fileno(), selectors.EVENT_READ, self.relay_ready, len(self.outbox) < BACKLOG)

    def listen(self, descriptor: int, events: int, act: Callable[[], None], wanted: bool) -> None:
        """Have `descriptor` in the select if it is `wanted` there, and only then."""
        there = descriptor in self.selector.get_map()
        if wanted and not there:
            self.selector.register(descriptor, events, act)
        elif there and not wanted:
            self.selector.unregister(descriptor)

    # --- what the launcher may ask

    def do_heartbeat(self) -> None:
        """Having been heard is all; a launcher that sends one will go on, or the way to it is cut."""
        self.expects_heartbeats = True

    def do_finish(self) -> None:
        """The job is over."""
        self.over = True

    def do_prepare(self, package: str, cwd: str, or_home: bool) -> None:
        """Unpack our own package, if it is sent, into the folder that goes with us; find where tasks can run."""
        home, cwd = os.path.expanduser("~"), os.path.expanduser(cwd)
        there = os.path.isdir(cwd)
        if package:
            self.unpack(package)
        if there or (or_home and os.path.isdir(home)):
            self.say("prepared", cwd=cwd if there else home, as_asked=there)
        else:
            self.say("unprepared", reason=f"the folder {cwd} is not there: make it, or choose another --chdir")

    def unpack(self, package: str) -> None:
        """Put our own package where tasks, and we, will find it."""
        import base64  # these three are not needed on the launcher's own host
        import io
        import zipfile

        self.package = os.path.join(self.temporary, "package")
        zipfile.ZipFile(io.BytesIO(base64.b64decode(package))).extractall(self.package)
        sys.path.insert(0, self.package)

    def do_reserve(self, ports: list[int], token: str) -> None:
        """Reserve these ports, 0 for any; with a token, answer peers that dial them."""
        for port in ports:
            try:
                self.ports.append(reserve(port))
            except OSError as error:
                self.say("refused", port=port, reason=os.strerror(error.errno or 0))
                return
        numbers = [held.getsockname()[1] for held in self.ports[len(self.ports) - len(ports) :]]
        if token:
            from tfdist.launch.agents.probe import ProbeServer  # installed here, or unpacked by do_prepare

            self.listener = ProbeServer(numbers, token)
        self.say("reserved", ports=numbers)

    def do_hush(self) -> None:
        """Answer peers no more: the ports belong to the tasks now."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def do_dial(self, targets: list[tuple[str, int]], token: str, timeout_s: float) -> None:
        """Try to reach peers, from a thread: names may take their time."""
        from tfdist.launch.agents.probe import dial_all

        self.find_out("dialled", lambda: {"failures": dial_all(targets, token, timeout_s)})

    def do_measure(self, address: str, port: int, token: str, seconds: float) -> None:
        """Measure the way to a peer."""
        from tfdist.launch.agents.probe import measured

        self.find_out("measured", lambda: measured(address, port, token, seconds))

    def find_out(self, kind: str, act: Callable[[], dict[str, Any]]) -> None:
        """Say what `act` returns, once a thread has done it."""

        def run() -> None:
            self.results.append((kind, act()))
            os.write(self.woken[1].fileno(), b"\0")

        threading.Thread(target=run, name=kind, daemon=True).start()

    def do_start(self, task: str, argv: list[str], env: dict[str, str], cwd: str, cores: list[int]) -> None:
        """Start one task."""
        try:
            pid = self.spawn(task, argv, env, cwd, cores)
        except (OSError, ValueError) as error:
            self.say("not_started", task=task, reason=str(error))
        else:
            self.say("started", task=task, pid=pid, time=time.time())

    def do_stop(self, tasks: list[str], grace_s: float) -> None:
        """Ask these tasks to end, and kill them after `grace_s` seconds; one that was asked is not asked again."""
        for task in (self.tasks[name] for name in tasks if name in self.tasks):
            task.release()
            until = time.monotonic() + grace_s
            if grace_s == 0:
                kill_group(task.process.pid, signal.SIGKILL)
                task.kill_at = None
            elif task.kill_at is None:
                kill_group(task.process.pid, signal.SIGTERM)
                task.kill_at = until
            else:
                task.kill_at = min(until, task.kill_at)

    def do_release(self) -> None:
        """All tasks of the job stand at the start barrier: open it."""
        for task in self.tasks.values():
            task.release()

    # --- tasks

    def spawn(self, name: str, argv: list[str], env: dict[str, str], cwd: str, cores: list[int]) -> int:
        """Start one task in its own process group, pinned to `cores` before its first instruction; its pid."""
        events, events_child = os.pipe()
        barrier_child, barrier = os.pipe()
        everything = os.sched_getaffinity(0)
        given = {
            "TFDIST_EVENTS_FD": str(events_child),
            "TFDIST_BARRIER_FD": str(barrier_child),
        }
        try:
            os.sched_setaffinity(0, cores or everything)
            process = subprocess.Popen(
                argv,
                env=self.environment(env) | given,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=(events_child, barrier_child),
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        except (OSError, ValueError):
            os.close(events)
            os.close(barrier)
            raise
        finally:
            os.sched_setaffinity(0, everything)
            os.close(events_child)
            os.close(barrier_child)
        assert process.stdout is not None
        assert process.stderr is not None
        pipes = {"stdout": process.stdout.fileno(), "stderr": process.stderr.fileno(), "events": events}
        task = self.tasks[name] = self.by_pid[process.pid] = RunningTask(name, process, pipes, barrier)
        for stream, descriptor in pipes.items():
            os.set_blocking(descriptor, False)
            self.pipes.register(descriptor, selectors.EVENT_READ, (task, stream))
        return process.pid

    def environment(self, own: dict[str, str]) -> dict[str, str]:
        """What a task finds in its environment: ours, its own, and the way to our package where that was sent.

        Unless it was told otherwise, its temporary files are in our folder: what a killed task could not delete
        (TensorFlow writes some) goes with us.
        """
        env = {**os.environ, "TMPDIR": self.temporary, **own}
        if self.package:
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (self.package, env.get("PYTHONPATH"))))
        return env

    def relay_ready(self) -> None:
        """Pass on what tasks have written."""
        for key, _ in self.pipes.select(0):
            self.relay(*key.data)

    def relay(self, task: RunningTask, stream: str) -> bool:
        """Pass on the whole lines among the next chunk of a stream; the unfinished one waits, if it is not too long.

        Returns whether there was anything.
        """
        descriptor = task.pipes[stream]
        try:
            chunk = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.pipes.unregister(descriptor)
        whole, newline, rest = (task.partial.pop(stream, b"") + chunk).rpartition(b"\n")
        if chunk and (stream == "events" or len(rest) < CHUNK):
            task.partial[stream], rest = rest, b""
        self.pass_on(task, stream, whole + newline + rest)
        return bool(chunk)

    def pass_on(self, task: RunningTask, stream: str, text: bytes) -> None:
        """One message for a piece of output, one for each event."""
        if stream != "events":
            if text:  # bytes that are not UTF-8 travel as surrogates, which the launcher turns back
                self.say("output", task=task.name, stream=stream, text=text.decode("utf-8", "surrogateescape"))
            return
        for line in text.splitlines():
            try:
                event = dict(json.loads(line))
            except (ValueError, TypeError, RecursionError):
                continue
            if nests_deeper(event, MOST_NESTED):
                continue
            self.say("event", task=task.name, time=time.time(), event=event)

    def watch_signals(self) -> None:
        """Have a child's end wake the select, which then reaps; be ended politely by the usual signals."""
        receive, send = socket.socketpair()
        for end in (receive, send):
            end.setblocking(False)
        self.woken = (receive, send)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: self.do_finish())
        signal.set_wakeup_fd(send.fileno(), warn_on_full_buffer=False)
        self.selector.register(receive, selectors.EVENT_READ, self.wake)

    def wake(self) -> None:
        """A signal came, or a thread has found something out."""
        self.woken[0].recv(CHUNK)
        self.reap()
        while self.results:
            kind, values = self.results.pop(0)
            self.say(kind, **values)

    def reap(self) -> None:
        """Take note of every child that has ended."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.by_pid:
                self.exited(self.by_pid.pop(pid), os.waitstatus_to_exitcode(status), usage)

    def exited(self, task: RunningTask, code: int, usage: resource.struct_rusage) -> None:
        """Say that a task has ended, after everything that it had written."""
        task.process.returncode, task.kill_at = code, None
        for stream, descriptor in task.pipes.items():
            for _ in range(MOST_CHUNKS_IN_A_PIPE):
                if descriptor not in self.pipes.get_map() or not self.relay(task, stream):
                    break
            self.pass_on(task, stream, task.partial.pop(stream, b""))
        task.release()
        self.say(
            "exited",
            task=task.name,
            code=code,
            time=time.time(),
            peak_memory_bytes=usage.ru_maxrss * 1024,
            cpu_s=usage.ru_utime + usage.ru_stime,
        )

    def clean_up(self) -> None:
        """Polite, then firm, to our children and to what becomes ours when its parent ends; then ports and files."""
        for number, seconds in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 3.0)):
            until = time.monotonic() + seconds
            told: set[int] = set()
            while (alive := children()) and time.monotonic() < until:
                for pid in alive - told:
                    kill_group(pid, number)
                told |= alive
                self.reap()
                time.sleep(0.01)
        shutil.rmtree(self.temporary, ignore_errors=True)
        for held in self.ports:
            held.close()
        if not self.cut_off:  # nobody would read the rest, and the stream takes no more
            os.set_blocking(1, True)
            self.flush()


def nests_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are in each other more than so many levels deep."""
    inside = [value]
    for _ in range(levels + 1):
        if not inside:
            return False
        lists = [each.values() if isinstance(each, dict) else each for each in inside if isinstance(each, (dict, list))]
        inside = [each for one in lists for each in one]
    return bool(inside)


def prctl(option: int, value: int) -> None:
    """The system call of that name, man 2 prctl."""
    LIBC.prctl(option, value, 0, 0, 0)


def children() -> set[int]:
    """The pids of our children, those that have ended but were not reaped included."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return {int(pid) for pid in file.read().split()}


def kill_group(pid: int, number: int) -> None:
    """Signal the process group that a descendant is in, if there still is one; never our own."""
    try:
        group = os.getpgid(pid)
    except ProcessLookupError:
        group = pid  # reaped, but its group may live on
    try:
        if group != os.getpgrp():
            os.killpg(group, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


if __name__ == "__main__":
    Agent().run()
