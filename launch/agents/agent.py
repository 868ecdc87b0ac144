"""The agent: one process on every host of a job. It reserves ports, starts tasks, relays their output and stops them.

The launcher sends the text of this file to a Python on the host, so the file needs only Python 3.10 and its standard
library; tfdist need not be installed there. Agent and launcher then exchange JSON, one object per line, over the
agent's stdin and stdout (`messages.py` is the launcher's side). One thread and one `select` do everything, except what
may take long. A second process (`fork_reaper`) kills what is left if the agent is killed.
"""

import ctypes
import glob
import json
import math
import os
import re
import resource
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

HEARTBEAT_S = 2.0
"""Send a heartbeat after this time without another message."""
COMMAND_TIMEOUT_S = 8.0
"""For nvidia-smi."""
CHUNK = 1 << 16
"""Bytes per read."""
BACKLOG = 1 << 20
"""With more unsent bytes than this, stop reading the tasks' pipes: the tasks block, and our memory stays bounded."""
MAX_CHUNKS_IN_PIPE = 16
"""A pipe holds at most 1 MiB (fs.pipe-max-size)."""
MAX_EVENT = 1 << 20
"""Bytes of an event. Longer ones are dropped."""
MAX_EVENT_DEPTH = 50
"""A deeper JSON object could exhaust the stack of a recursive reader."""
GPU_DEVICES = "/dev/nvidia[0-9]*"
"""The device files of NVIDIA's kernel driver. Without one, nvidia-smi is not started."""
PARTIAL_S = 1.0
"""Send an incomplete line of output after this time (progress bars end theirs with a carriage return)."""
STUCK_S = 5.0
"""Report a task that still exists this long after SIGKILL as stuck."""
CLEAN_UP_KILL_S = 3.0
"""Wait for processes after SIGKILL, when the agent cleans up."""
LAST_MESSAGES_S = 5.0
"""Wait until the launcher has read the last messages."""
LISTEN_POLL_S, LISTEN_SOON_S = 0.5, 30.0
"""How often to look whether the server of a task listens, and for how long; then with each heartbeat."""
UTF8_LENGTHS = ((0xF5, 1), (0xF0, 4), (0xE0, 3), (0xC2, 2), (0, 1))
"""Bytes of a character from this first byte on. 0xF5 to 0xFF, 0xC0 and 0xC1 are in no UTF-8 text."""
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a task that was killed, and of a shell whose program was killed."""
AGENT_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""They make the agent stop its tasks and exit."""
ABANDONED: set[int] = set()
"""Commands that did not end in time. The agent kills them, but never waits for them."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # man 2 prctl
LIBC = ctypes.CDLL(None)
TRAINING_PACKAGES = ("tensorflow", "tf_keras")
"""Every host of a training needs them, in the same version."""
TENSORFLOW_NAMES = (
    "tensorflow_cpu", "tensorflow_gpu", "tensorflow_rocm", "tensorflow_macos", "tensorflow_aarch64",
    "tensorflow_cpu_aws", "intel_tensorflow", "tf_nightly", "tf_nightly_cpu",
)  # fmt: skip
"""Other distributions of the package `tensorflow`."""
PACKAGES = {
    **{name: name for name in (*TRAINING_PACKAGES, "keras", "numpy", "tfdist")},
    "tf_keras_nightly": "tf_keras",
    **dict.fromkeys(TENSORFLOW_NAMES, "tensorflow"),
}
"""The distributions whose versions the hello reports, and the package that each installs."""


def describe() -> dict[str, Any]:
    """This host as JSON values. Does not import TensorFlow: versions come from package metadata.

    `cores` are those that tasks may use, the least used first, and `cores_in_use` those of them to which other
    processes are pinned. `core_limit` is the number of cores that cgroups allow, and `busy` the share of all cores of
    the machine, 0..1, that other programs use now.
    """
    busy, allowed, core_limit, memory_limits = _busy(), os.sched_getaffinity(0), cgroup_cores(), cgroup_memory()
    use = pinned_processes(allowed)
    cores = usable_cores(use, core_limit)
    kernel = os.uname()
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "host": socket.gethostname(),
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "packages": _versions(),
        "cores": cores,
        "cores_in_use": [core for core in cores if use[core]],
        "core_limit": core_limit,
        "cpu": _cpu_model(),
        "memory_bytes": min([memory_bytes, *(limit for limit, _ in memory_limits)]),
        "memory_free_bytes": min([_memory_free(), *(max(0, limit - used) for limit, used in memory_limits)]),
        "disk_free_bytes": _disk_free(temporary_root()),
        **_describe_gpus(),
        "os": f"{kernel.sysname} {kernel.release}",
        "machine": kernel.machine,
        "busy": min(busy, _busy()),
    }


def _versions() -> dict[str, str]:
    # The names of the .dist-info folders: 30 times faster than importlib.metadata, which parses each file.
    versions: dict[str, str] = {}
    pattern = re.compile(r"([A-Za-z0-9_.]+)-([^-]+)\.dist-info$")
    for folder in sys.path:
        try:
            names = sorted(os.listdir(folder))
        except OSError:  # a zip, missing, or unreadable: Python skips it too
            continue
        for name, version in (match.groups() for match in map(pattern.match, names) if match):
            package = PACKAGES.get(name.lower().replace(".", "_"))
            if package is not None:
                versions.setdefault(package, version)
    return versions


def _cpu_model() -> str:
    return _proc_value("/proc/cpuinfo", "model name") or os.uname().machine


def _memory_free() -> int:
    available = _proc_value("/proc/meminfo", "MemAvailable").split()  # counts the page cache as free
    return int(available[0]) * 1024 if available else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _busy() -> float:
    # The number of cores in use: the average of the last minute, but no more than the threads that run or wait for a
    # core now, this one not counted (man 5 proc, loadavg). The average alone would still count a job that has ended.
    average, _, _, running, *_ = _read("/proc/loadavg").split() or ("0", "", "", "1/1")
    cores = os.cpu_count() or 1
    return max(0.0, min(float(average), int(running.partition("/")[0]) - 1.0, cores)) / cores


def pinned_processes(allowed: set[int]) -> dict[int, float]:
    """How much the pinned processes of this host use each allowed core: one that may use n cores counts 1/n on each.

    A process counts as pinned if there is an allowed core that it may not use. Kernel threads, which have no command
    line, do not count.
    """
    use = dict.fromkeys(allowed, 0.0)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            cores = os.sched_getaffinity(int(pid))
        except OSError:  # it has ended
            continue
        shared = cores & allowed
        if shared and shared != allowed and _read(f"/proc/{pid}/cmdline"):
            for core in shared:
                use[core] += 1 / len(shared)
    return use


def usable_cores(use: dict[int, float], limit: float | None) -> list[int]:
    """The cores, the least used first; at most `limit`, rounded up."""
    cores = sorted(use, key=lambda core: (use[core], core))
    return cores if limit is None else cores[: max(1, int(-(-limit // 1)))]


def cgroup_folders(controller: str, root: str = "") -> list[str]:
    """The folder of this process's cgroup for a controller (`memory`, `cpu`), and those of its ancestors.

    They are of version 1 if the controller is, else of version 2. As far as they are mounted: in a container often
    only its own. `root` is put before each path.
    """
    lines = [line.split(":", 2) for line in _read(f"{root}/proc/self/cgroup").splitlines()]
    paths = {name: path for _, names, path in lines for name in names.split(",")}
    name = controller if controller in paths else ""  # the line of version 2 names no controllers
    for line in _read(f"{root}/proc/self/mountinfo").splitlines() if name in paths else ():
        mount, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        if kind == ("cgroup" if name else "cgroup2") and (not name or name in options.split(",")):
            top, folder = mount.split(" ")[3:5]
            inside = [part for part in os.path.relpath(paths[name], top).split("/") if part != "."]
            if ".." in inside:  # of another namespace: only the mounted part is known
                inside = []
            return [os.path.join(f"{root}{folder}", *inside[:depth]) for depth in range(len(inside), -1, -1)]
    return []


def cgroup_memory(root: str = "") -> list[tuple[int, int]]:
    """(limit, used) in bytes of each cgroup that limits the memory of this process; cached files are not used."""
    limits = []
    for folder in cgroup_folders("memory", root):
        limit = _read(f"{folder}/memory.max") or _read(f"{folder}/memory.limit_in_bytes")
        used = _read(f"{folder}/memory.current") or _read(f"{folder}/memory.usage_in_bytes")
        cached = dict(re.findall(r"(\w*inactive_file) (\d+)", _read(f"{folder}/memory.stat")))
        dropped = cached.get("total_inactive_file") or cached.get("inactive_file") or 0  # total: with descendants
        if limit.strip().isdigit():
            limits.append((int(limit), int(used or 0) - int(dropped)))
    return limits


def cgroup_cores(root: str = "") -> float | None:
    """The number of cores whose time this process's cgroups may use; None: no limit."""
    limits = []
    for folder in cgroup_folders("cpu", root):
        files = ("cpu.max",) if os.path.exists(f"{folder}/cpu.max") else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        values = " ".join(_read(f"{folder}/{file}") for file in files).split()  # quota and period; max or -1: no limit
        if len(values) == 2 and values[0].isdigit():
            limits.append(int(values[0]) / int(values[1]))
    return min(limits, default=None)


def _disk_free(folder: str) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _program(name: str) -> str | None:
    paths = (os.path.join(folder, name) for folder in os.get_exec_path())
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def _proc_value(path: str, key: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(key))
    except (OSError, StopIteration):
        return ""


def _describe_gpus() -> dict[str, Any]:
    # `gpus`, `gpu_ids` and `gpu_uuids` are names, CUDA_VISIBLE_DEVICES entries and UUIDs of the visible GPUs,
    # `gpus_hidden` is the number of GPUs that CUDA_VISIBLE_DEVICES hides, `gpu_devices` the number of device files.
    # With device files, but neither visible nor hidden GPUs, nvidia-smi is missing or failed.
    visible, files, tool = os.environ.get("CUDA_VISIBLE_DEVICES"), glob.glob(GPU_DEVICES), _program("nvidia-smi")
    hides_all = visible is not None and not re.match(r"\s*(\d|GPU-|MIG-)", visible)
    gpus = list_gpus(output_of([tool, "-L"])) if tool is not None and files and not hides_all else []
    shown = visible_gpus(gpus, visible)
    return {
        "gpus": [gpu.name for _, gpu in shown],
        "gpu_ids": [entry for entry, _ in shown],
        "gpu_uuids": [gpu.uuid for _, gpu in shown],
        "gpu_processes": _gpu_processes(tool, [gpu for _, gpu in shown]) if tool and shown else [],
        "gpus_hidden": len(files) if hides_all else max(0, len(gpus) - len(shown)),
        "gpu_devices": len(files),
        "driver": _read("/sys/module/nvidia/version").strip() if gpus else "",
    }


def output_of(command: list[str]) -> str:
    """The stdout of a command; empty if it cannot be run, or after a timeout (nvidia-smi hangs if the driver does).

    After a timeout the command is abandoned: in uninterruptible sleep it would not even end when killed.
    """
    reader, writer = os.pipe()
    opened = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 2)]
    actions = [*opened, (os.POSIX_SPAWN_DUP2, writer, 1)]
    try:  # in its own process group, so that its children are killed with it
        pid = os.posix_spawnp(command[0], command, os.environ, file_actions=actions, setpgroup=0)
    except OSError:
        os.close(reader)
        return ""
    finally:
        os.close(writer)
    with open(reader, "rb", buffering=0) as stream, selectors.PollSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        deadline, output = time.monotonic() + COMMAND_TIMEOUT_S, b""
        while (left_s := deadline - time.monotonic()) > 0 and selector.select(left_s):
            chunk = stream.read(CHUNK) or b""
            if not chunk:
                return output.decode(errors="replace")
            output += chunk
    ABANDONED.add(pid)
    return ""


class Gpu(NamedTuple):
    """A CUDA device: a GPU, or a MIG instance of one."""

    number: str
    """Of the GPU, by PCI bus."""
    gpu_uuid: str
    """UUID of the GPU."""
    uuid: str
    """UUID of the instance; of the GPU if it is not divided."""
    name: str


def list_gpus(text: str) -> list[Gpu]:
    """The CUDA devices in the output of `nvidia-smi -L`. MIG instances replace the GPU that they divide."""
    gpus: list[Gpu] = []
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+): (.*) \(UUID: (\S+)\)", line):
            gpus.append(Gpu(match[1], match[3], match[3], match[2]))
        elif gpus and (match := re.match(r"\s+(MIG \S+).*\(UUID: (\S+)\)", line)):
            last = gpus.pop() if gpus[-1].uuid == gpus[-1].gpu_uuid else gpus[-1]
            model = last.name.partition(" MIG ")[0]
            gpus.append(Gpu(last.number, last.gpu_uuid, match[2], f"{model} {match[1]}"))
    return gpus


def visible_gpus(gpus: list[Gpu], visible: str | None) -> list[tuple[str, Gpu]]:
    """Each GPU that a value of CUDA_VISIBLE_DEVICES selects, in its order, with the entry that selects it.

    As in CUDA, an entry is an index or a UUID prefix, an invalid entry hides itself and all that follow
    (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars), and a GPU that is divided by MIG stands for its
    first instance (https://docs.nvidia.com/datacenter/tesla/mig-user-guide/#cuda-device-enumeration).
    """
    if visible is None:
        return [(gpu.number if gpu.uuid == gpu.gpu_uuid else gpu.uuid, gpu) for gpu in gpus]
    shown = []
    for entry in map(str.strip, visible.split(",")):
        found = [gpu for gpu in gpus if entry and (entry == gpu.number or _has_prefix(gpu, entry))]
        if not found:
            break
        shown.append((entry, found[0]))
    return shown


def _has_prefix(gpu: Gpu, prefix: str) -> bool:
    return gpu.uuid.startswith(prefix) or gpu.gpu_uuid.startswith(prefix)


def _gpu_processes(tool: str, gpus: list[Gpu]) -> list[list[str]]:
    # UUID (as in `gpu_uuids`), pid, program and memory of each process that computes on one of these GPUs.
    query = [tool, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader"]
    rows = [re.match(r"(\S+), (\S+), (.*), (.*)", line) for line in output_of(query).splitlines()]
    return [[*row.groups()] for gpu in gpus for row in rows if row and row[1] == gpu.uuid]


def temporary_root() -> str:
    """The folder for temporary files: TMPDIR if it is a folder, else /tmp."""
    folder = os.environ.get("TMPDIR") or "/tmp"
    return os.path.abspath(folder) if os.path.isdir(folder) else "/tmp"


def reserve(port: int) -> socket.socket:
    """Bind `port` (0: any free one) without listening, so that no other process takes it before the task does.

    The task can bind the same port because both set SO_REUSEPORT (gRPC does with TF_GRPC_REUSE_PORT=true).
    A fixed port is first bound without SO_REUSEPORT, to detect another job that has reserved it.

    Raises:
        OSError: the port is in use, or binding it is not permitted.
    """
    if port:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections in TIME_WAIT
            probe.bind(("", port))
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("", port))
    return reserved


class _RunningTask:
    """One attempt of a task."""

    def __init__(
        self, name: str, attempt: int, pid: int, pipes: dict[str, int], barrier: int, port: int | None
    ) -> None:
        self.name, self.attempt, self.pid, self.port = name, attempt, pid, port
        self.pipes = pipes  # those that are still open, by stream
        self.barrier: int | None = barrier
        self.forked_at = time.monotonic()
        self.running = True  # until it is reaped; afterwards its pid may belong to another process
        self.launched = False  # it runs its program
        self.listening = self.stopped = self.killed = False
        self.kill_at = self.stuck_at = math.inf
        self.partial: dict[str, bytes] = {}  # the incomplete last line of each stream
        self.partial_due: dict[str, float] = {}
        self.skips_event = self.has_skipped = False
        self.oom_kills_before = oom_kills()

    def release(self) -> None:
        """Open the start barrier: the task reads the other end of this pipe until it is closed."""
        if self.barrier is not None:
            os.close(self.barrier)
            self.barrier = None


class Agent:
    """The event loop. A method `_do_<kind>` handles each message; `messages.py` says what the messages mean."""

    def __init__(self, temporary: str) -> None:
        self.temporary = temporary  # a folder that does not exist yet
        self.parent = os.getppid()
        self.grace_s, self.launcher_timeout_s = 5.0, 60.0  # until `Configure`
        self.clean_up_grace_s: float | None = None  # that of the last `Stop`, if no task was started since
        self.selector = selectors.EpollSelector()
        self.task_selector = selectors.EpollSelector()  # nested in the other one, so reading all tasks can be paused
        self.tasks: dict[str, _RunningTask] = {}  # the last attempt of each
        self.by_pid: dict[int, _RunningTask] = {}  # those not reaped
        self.leftovers: dict[int, float] = {}  # process groups that outlived a stopped task, and when they get SIGKILL
        self.terminated: set[int] = set()  # orphans that were sent SIGTERM
        self.unkillable: set[int] = set()  # children that no longer matter
        self.reserved_sockets: list[socket.socket] = []
        self.unparsed, self.unsent = b"", bytearray()
        self.last_received = self.last_sent = time.monotonic()
        self.listen_poll_at = 0.0  # when to look for listening servers again
        self.finished = self.disconnected = False
        self.expects_heartbeats = False
        self.signal_received = ""
        self.kernel_log = KernelLog()
        self.package = ""  # the folder of the unpacked tfdist package, if the launcher sent it
        self.probe_server: Any = None
        self.replies: list[tuple[str, dict[str, Any]]] = []  # from threads, to be sent by the event loop

    def run(self) -> None:
        """Serve until the launcher sends `Finish`, disconnects or times out; then clean up the host."""
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._watch_signals()
        for stream in (0, 1):
            os.set_blocking(stream, False)
        self.selector.register(0, selectors.EVENT_READ, self._receive)
        self.selector.register(self.task_selector, selectors.EVENT_READ, self._relay_all)
        try:
            self.unsent += b"\n"  # ends a partial line that a login script may have printed
            self._send("alive", time=time.time())
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
        for key, _ in self.selector.select(max(0.0, min(at_most_s, self._due() - time.monotonic()))):
            key.data()
        now = time.monotonic()
        self._kill_due(now)
        self._send_partial_lines(now)
        self._report_listening(now)
        if now - self.last_sent >= HEARTBEAT_S:
            self._send("heartbeat", time=time.time())
        if self.expects_heartbeats and not self.finished and now - self.last_received >= self.launcher_timeout_s:
            self._send("leaving", reason=f"no message from the launcher for {self.launcher_timeout_s:g} s")
            self._disconnect()

    def _due(self) -> float:
        due = [self.last_sent + HEARTBEAT_S, *self.leftovers.values()]
        for task in self.by_pid.values():
            due += [task.kill_at, task.stuck_at, *task.partial_due.values()]
        if any(_awaits_server(task) for task in self.by_pid.values()):
            due.append(self.listen_poll_at)
        if self.expects_heartbeats and not self.finished:
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
        *lines, self.unparsed = (self.unparsed + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            getattr(self, "_do_" + message.pop("kind"))(**message)

    def _send(self, kind: str, **values: Any) -> None:
        if not self.disconnected:
            self.unsent += json.dumps({"kind": kind, **values}).encode() + b"\n"
            self._flush()
        self.last_sent = time.monotonic()

    def _send_later(self, kind: str, compute: Callable[[], dict[str, Any]]) -> None:
        """Send a message whose values are computed in a thread, because that may take long."""

        def run() -> None:
            try:
                self.replies.append((kind, compute()))
            except Exception as error:
                self.replies.append(("leaving", {"reason": f"{type(error).__name__}: {error}"}))
            try:
                self.wake_sockets[1].send(b"\0")
            except BlockingIOError:  # full: it wakes up anyway
                return

        threading.Thread(target=run, name=kind, daemon=True).start()

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

    def _do_configure(self, grace_s: float, launcher_timeout_s: float) -> None:
        self.grace_s, self.launcher_timeout_s = grace_s, launcher_timeout_s

    def _do_heartbeat(self, time: float) -> None:
        self.expects_heartbeats = True  # a launcher that has sent one sends more; without them, the link is cut

    def _do_finish(self) -> None:
        self.finished = True

    def _do_prepare(self, request: int, package: str, cwd: str, home_fallback: bool) -> None:
        def prepare() -> dict[str, Any]:
            home, requested = os.path.expanduser("~"), os.path.expanduser(cwd)
            exists = os.path.isdir(requested)
            if package:
                self._unpack(package)
            fallback = home if home_fallback and os.path.isdir(home) else ""
            return {"request": request, "requested": requested, "actual": requested if exists else fallback}

        self._send_later("prepared", prepare)

    def _unpack(self, package: str) -> None:
        import base64  # these three are not needed on the launcher's own host
        import io
        import zipfile

        self.package = os.path.join(self.temporary, "package")
        zipfile.ZipFile(io.BytesIO(base64.b64decode(package))).extractall(self.package)
        sys.path.insert(0, self.package)

    def _do_reserve(self, request: int, ports: list[int], token: str) -> None:
        for port in ports:
            try:
                self.reserved_sockets.append(reserve(port))
            except OSError as error:
                self._send("not_reserved", request=request, port=port, reason=os.strerror(error.errno or 0))
                return
        new_sockets = self.reserved_sockets[len(self.reserved_sockets) - len(ports) :]
        numbers = [reserved.getsockname()[1] for reserved in new_sockets]
        if token:
            from tfdist.launch.agents.probe import ProbeServer  # installed, or unpacked by _do_prepare

            self.probe_server = ProbeServer(numbers, token)
        self._send("reserved", request=request, ports=numbers)

    def _do_close_probe(self) -> None:
        if self.probe_server is not None:
            self.probe_server.close()
            self.probe_server = None

    def _do_dial(self, request: int, targets: list[tuple[str, int]], token: str, timeout_s: float) -> None:
        from tfdist.launch.agents.probe import dial_all

        self._send_later("dial_result", lambda: {"request": request, "failures": dial_all(targets, token, timeout_s)})

    def _do_measure_link(self, request: int, address: str, port: int, token: str, seconds: float) -> None:
        from tfdist.launch.agents.probe import measure_link

        self._send_later("link_speed", lambda: {"request": request, **measure_link(address, port, token, seconds)})

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
            self._before_start(task)
            self._spawn(task, attempt, argv, env, cwd, cores, port)
        except (OSError, RuntimeError) as error:  # for example, too many open files or processes
            self._send("not_started", task=task, attempt=attempt, reason=str(error))

    def _do_inspect(self, request: int, tasks: list[str]) -> None:
        running = {task.name: task.pid for task in self.by_pid.values() if task.name in tasks}
        states = {name: _process_state(pid) for name, pid in running.items()}
        waits = {name: _wait_channel(pid) for name, pid in running.items()}
        cpu_s = {name: _cpu_time(pid) for name, pid in running.items()}
        self._send("inspected", request=request, states=states, waits=waits, cpu_s=cpu_s)

    def _do_stop(self, tasks: list[str], grace_s: float) -> None:
        self.clean_up_grace_s = grace_s
        for name in tasks:
            if name in self.tasks:
                self._stop(self.tasks[name], grace_s)

    def _do_release(self, attempt: int) -> None:
        for task in self.tasks.values():
            if task.attempt == attempt:
                task.release()

    # --- tasks

    def _before_start(self, name: str) -> None:
        """Kill what an earlier attempt of the task has left.

        Raises:
            RuntimeError: the task must not be started.
        """
        earlier = self.tasks.get(name)
        if self.finished:
            raise RuntimeError("the agent is leaving")
        if earlier is not None and earlier.running:
            raise RuntimeError(f"its attempt {earlier.attempt} still runs")
        if earlier is not None:
            _kill_groups(_orphans(earlier.pid))
        self.clean_up_grace_s = None

    def _spawn(
        self,
        name: str,
        attempt: int,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        cores: list[int],
        port: int | None,
    ) -> None:
        """Fork a task in a session and process group of its own.

        Does not wait until the task runs its program, because it could hang in a folder that does not answer:
        `_after_exec` is called then. Fork in the main thread: the kernel kills a task when the thread that forked it
        ends (PR_SET_PDEATHSIG).
        """
        inner: dict[str, int] = {}  # the task's ends of the pipes
        outer: dict[str, int] = {}
        try:
            for stream in ("failure", "stdout", "stderr", "events"):
                outer[stream], inner[stream] = os.pipe()
            inner["barrier"], outer["barrier"] = os.pipe()
            descriptors = {"TFDIST_EVENTS_FD": str(inner["events"]), "TFDIST_BARRIER_FD": str(inner["barrier"])}
            environment = self._task_environment(env) | descriptors
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                pid = os.fork()
                if pid == 0:
                    _run_program(argv, environment, cwd, cores, inner)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        except OSError:
            for descriptor in outer.values():
                os.close(descriptor)
            raise
        finally:
            for descriptor in inner.values():
                os.close(descriptor)
        self._add_task(_RunningTask(name, attempt, pid, outer, outer.pop("barrier"), port))

    def _add_task(self, task: _RunningTask) -> None:
        self.tasks[task.name] = self.by_pid[task.pid] = task
        for stream, descriptor in task.pipes.items():
            os.set_blocking(descriptor, False)
            self.task_selector.register(descriptor, selectors.EVENT_READ, (task, stream))

    def _task_environment(self, env: dict[str, str]) -> dict[str, str]:
        # TMPDIR is our own folder unless `env` sets it: TensorFlow leaves files there if killed, and we delete them.
        env = {"PYTHONUNBUFFERED": "1", **os.environ, "TMPDIR": self.temporary, **env}
        if self.package:
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (self.package, env.get("PYTHONPATH"))))
        return env

    def _after_exec(self, task: _RunningTask, failure: bytes) -> None:
        if failure:
            self._send("not_started", task=task.name, attempt=task.attempt, reason=failure.decode(errors="replace"))
        else:
            task.launched = True
            self._send("started", task=task.name, attempt=task.attempt, pid=task.pid, time=time.time())

    def _report_listening(self, now: float) -> None:
        waiting = [task for task in self.by_pid.values() if _awaits_server(task)]
        if not waiting or now < self.listen_poll_at:
            return
        ports = listening_ports()
        for task in waiting:
            if task.port in ports:
                task.listening = True
                self._send("listening", task=task.name, attempt=task.attempt, time=time.time())
        young = any(now - task.forked_at < LISTEN_SOON_S for task in waiting)
        self.listen_poll_at = now + (LISTEN_POLL_S if young else HEARTBEAT_S)

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
        if not chunk or stream == "failure":
            self.task_selector.unregister(task.pipes[stream])
            os.close(task.pipes.pop(stream))
        if stream == "failure":
            self._after_exec(task, chunk)
        elif stream == "events":
            self._relay_events(task, chunk or b"\n")
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
        for task in self.by_pid.values():
            for stream in [stream for stream, due in task.partial_due.items() if now >= due]:
                del task.partial_due[stream]
                text = task.partial.pop(stream)
                end = end_of_characters(text)
                self._send_text(task, stream, text[:end])
                task.partial[stream] = text[end:]

    def _send_text(self, task: _RunningTask, stream: str, text: bytes) -> None:
        if text:
            decoded = text.decode("utf-8", "surrogateescape")  # bytes that are not UTF-8 travel as surrogates
            self._send("output", task=task.name, attempt=task.attempt, stream=stream, text=decoded)

    def _relay_events(self, task: _RunningTask, chunk: bytes) -> None:
        *lines, rest = (task.partial.pop("events", b"") + chunk).split(b"\n")
        if task.skips_event and lines:
            del lines[0]  # the rest of a line that was too long
            task.skips_event = False
        for line in lines:
            self._relay_event(task, line)
        task.skips_event = task.skips_event or len(rest) > MAX_EVENT
        if task.skips_event:
            self._skip_event(task)
        else:
            task.partial["events"] = rest

    def _relay_event(self, task: _RunningTask, line: bytes) -> None:
        if len(line) > MAX_EVENT:
            self._skip_event(task)
            return
        try:
            event = dict(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            return
        if not nests_deeper(event, MAX_EVENT_DEPTH):
            self._send("event", task=task.name, attempt=task.attempt, time=time.time(), event=event)

    def _skip_event(self, task: _RunningTask) -> None:
        if not task.has_skipped:
            task.has_skipped = True
            self._relay_text(task, "stderr", b"tfdist: an event of more than 1 MiB was dropped\n")

    # --- the end of tasks

    def _stop(self, task: _RunningTask, grace_s: float) -> None:
        # A task gets SIGTERM only once. A later request can only shorten the time until SIGKILL.
        task.release()
        if not task.running:
            return
        if not task.stopped and grace_s > 0:
            _terminate(task.pid)
        if not task.killed:
            task.kill_at = min(task.kill_at, time.monotonic() + grace_s)
        task.stopped = True

    def _kill_due(self, now: float) -> None:
        for task in self.by_pid.values():
            if now >= task.kill_at:
                task.kill_at, task.killed, task.stuck_at = math.inf, True, now + STUCK_S
                _kill_group(task.pid)
            if now >= task.stuck_at:
                task.stuck_at = math.inf
                self.unkillable.add(task.pid)
                state, wait = _process_state(task.pid), _wait_channel(task.pid)
                self._send("stuck", task=task.name, attempt=task.attempt, time=time.time(), state=state, wait=wait)
        for group in [group for group, kill_at in self.leftovers.items() if now >= kill_at]:
            del self.leftovers[group]
            _kill_groups(_orphans(group))

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for pids in (self.terminated, self.unkillable, ABANDONED):
                pids.discard(pid)
            if pid in self.by_pid:
                self._report_exit(self.by_pid.pop(pid), os.waitstatus_to_exitcode(status), usage)

    def _report_exit(self, task: _RunningTask, code: int, usage: resource.struct_rusage) -> None:
        # The exit is sent after all output of the task.
        task.running = False
        for stream in list(task.pipes):
            for _ in range(MAX_CHUNKS_IN_PIPE):
                if stream not in task.pipes or not self._relay(task, stream):
                    break
        for stream in ("stdout", "stderr"):  # a pipe may be open in another process
            self._send_text(task, stream, task.partial.pop(stream, b""))
        task.release()
        if task.launched:
            self._send_exit(task, code, usage)
        if task.stopped:
            self._stop_group(task)

    def _send_exit(self, task: _RunningTask, code: int, usage: resource.struct_rusage) -> None:
        kills = max(0, oom_kills() - task.oom_kills_before)
        self._send(
            "exited",
            task=task.name,
            attempt=task.attempt,
            code=code,
            time=time.time(),
            peak_memory_bytes=usage.ru_maxrss * 1024,
            cpu_s=usage.ru_utime + usage.ru_stime,
            oom_kills=kills,
            kernel_log=self.kernel_log.find(task.pid, kills > 0) if code in KILLED and not task.killed else "",
        )

    def _stop_group(self, task: _RunningTask) -> None:
        if _orphans(task.pid):
            self._terminate_orphans(task.pid)
            self.leftovers[task.pid] = task.kill_at if not task.killed else time.monotonic()

    def _terminate_orphans(self, group: int | None = None) -> None:
        for pid in _orphans(group) - self.by_pid.keys() - self.terminated:
            self.terminated.add(pid)
            _terminate(pid)

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
        self.signal_received = signal.Signals(number).name
        self.finished = True

    def _wake(self) -> None:
        self.wake_sockets[0].recv(CHUNK)
        self._reap()
        while self.replies:
            kind, values = self.replies.pop(0)
            self._send(kind, **values)
            self.finished = self.finished or kind == "leaving"
        for pid in ABANDONED & _children():
            _kill_group(pid)

    def _clean_up(self) -> None:
        # As a subreaper, we also inherit orphaned grandchildren, so continue until no child is left.
        grace_s = self.grace_s if self.clean_up_grace_s is None else self.clean_up_grace_s
        for task in self.by_pid.values():
            self._stop(task, grace_s)
        kill_at = time.monotonic() + grace_s
        while (left := _children() - self.unkillable - ABANDONED) and time.monotonic() < kill_at + CLEAN_UP_KILL_S:
            self._terminate_orphans()
            if time.monotonic() >= kill_at:
                _kill_groups(left)
            self._step(0.02)
        remove_folder(self.temporary)
        for reserved in self.reserved_sockets:
            reserved.close()
        self._send_last_messages()

    def _send_last_messages(self) -> None:
        if os.getppid() != self.parent:
            self._send("leaving", reason="its parent process was killed")
        elif self.signal_received:
            self._send("leaving", reason=f"received {self.signal_received}")
        until = time.monotonic() + LAST_MESSAGES_S
        while self.unsent and time.monotonic() < until:
            self._step()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # ends the stream even if a thread of ours cannot end


def _awaits_server(task: _RunningTask) -> bool:
    return task.port is not None and task.launched and not task.listening


def listening_ports() -> set[int]:
    """The TCP ports that any process of this host listens on."""
    ports = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as lines:
                next(lines)
                for line in lines:
                    _, local, _, state, *_ = line.split(None, 4)
                    if state != "0A":  # listening sockets come first; reading all others could take long
                        break
                    ports.add(int(local.rpartition(":")[2], 16))
        except (OSError, StopIteration):  # no IPv6
            continue
    return ports


def end_of_characters(text: bytes) -> int:
    """The length of `text` without an incomplete UTF-8 character at its end."""
    for back in range(1, min(3, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 != 0x80:  # the first byte of a character
            length = next(length for first, length in UTF8_LENGTHS if byte >= first)
            return len(text) - back if length > back else len(text)
    return len(text)


def nests_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects in a JSON value are nested more than `levels` deep. Not recursive."""
    level = [value]
    for _ in range(levels + 1):
        if not level:
            return False
        containers = [
            node.values() if isinstance(node, dict) else node for node in level if isinstance(node, (dict, list))
        ]
        level = [child for container in containers for child in container]
    return bool(level)


# --- out of memory


def oom_kills(root: str = "") -> int:
    """The number of processes in this process's cgroup that the kernel has killed for lack of memory; 0 if unknown.

    `root` is put before each path.
    """
    for folder in cgroup_folders("memory", root)[:1]:
        counts = _read(f"{folder}/memory.events") or _read(f"{folder}/memory.oom_control")
        return sum(map(int, re.findall(r"^oom_kill (\d+)$", counts, re.MULTILINE)))
    return 0


class KernelLog:
    """What the kernel logs about processes that it kills for lack of memory, as far as reading is permitted."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self.lines: list[str] = []
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.descriptor, 0, os.SEEK_END)
        except OSError:
            self.descriptor = -1

    def find(self, pid: int, any_process: bool) -> str:
        """The last line since the agent's start about the process; with `any_process`, or else about any process."""
        self._read()
        about = [line for line in self.lines if re.search(rf"\b(Killed process |pid=){pid}\b", line)]
        return (about or (self.lines if any_process else []) or [""])[-1]

    def _read(self) -> None:
        while self.descriptor >= 0:
            try:
                text = os.read(self.descriptor, CHUNK).decode(errors="replace")  # /dev/kmsg: one record
            except BrokenPipeError:  # records were overwritten
                continue
            except OSError:
                return
            if not text:
                return
            lines = [line.partition(";")[2] for line in text.splitlines()]
            self.lines += [line for line in lines if re.search("Killed process|Out of memory|oom-kill", line)]


# --- processes


def _run_program(
    argv: list[str], env: dict[str, str], cwd: str, cores: list[int], descriptors: dict[str, int]
) -> NoReturn:
    """In a forked child with all signals blocked: become a task. Write the reason to `failure` if that fails."""
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (*AGENT_SIGNALS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if cores:
            os.sched_setaffinity(0, cores)
        for target, source in enumerate(
            (os.open(os.devnull, os.O_RDONLY), descriptors["stdout"], descriptors["stderr"])
        ):
            os.dup2(source, target)
        for name in ("events", "barrier"):
            os.set_inheritable(descriptors[name], True)
        os.chdir(cwd)
        try:
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            raise OSError(error.errno, error.strerror, argv[0]) from None
    except BaseException as error:
        os.write(descriptors["failure"], str(error).encode("utf-8", "replace"))
    os._exit(127)


def fork_reaper(temporary: str) -> None:
    """Fork. Only the child returns; the parent waits for it and exits with its code, 128 + N for signal N.

    If the child fails or is killed, the parent kills all processes that it leaves, daemons included: as a subreaper,
    it becomes their parent. It also deletes the folder `temporary`. If the parent is killed, the child gets SIGTERM.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
        return
    for number in AGENT_SIGNALS:
        signal.signal(number, lambda number, _: os.kill(child, number))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # the launcher must see the end of the child's stream
        os.dup2(null, stream)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    for number in AGENT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        _kill_all_children(time.monotonic() + CLEAN_UP_KILL_S)
        remove_folder(temporary)
    os._exit(code if code >= 0 else 128 - code)


def _kill_all_children(until: float) -> None:
    while (left := _children()) and time.monotonic() < until:
        _kill_groups(left)
        for pid in left:
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def remove_folder(path: str) -> None:
    """Delete a folder with all that it holds, as far as possible."""
    try:
        os.rmdir(path)  # mostly empty
    except OSError:
        import shutil  # rarely needed

        shutil.rmtree(path, ignore_errors=True)


def _prctl(option: int, value: int) -> None:
    LIBC.prctl(option, value, 0, 0, 0)


def _process_state(pid: int) -> str:
    return (_stat(pid) or [""])[0]


def _wait_channel(pid: int) -> str:
    return _read(f"/proc/{pid}/wchan").strip("0")


def _cpu_time(pid: int) -> float:
    ticks = (_stat(pid) or ["0"] * 13)[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    # State, parent, process group, session, ... (man 5 proc_pid_stat, without the first two fields)
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _children() -> set[int]:
    # Includes children that have exited but were not reaped. Only the list of the thread that forked has a child.
    threads = os.listdir("/proc/self/task")
    return {int(pid) for thread in threads for pid in _read(f"/proc/self/task/{thread}/children").split()}


def _orphans(group: int | None = None) -> set[int]:
    # Our children that are not reaped, in this session or process group: as long as there is one, no other process can
    # have the number of the group.
    return {pid for pid in _children() if group is None or str(group) in _stat(pid)[2:4]}


def _terminate(pid: int) -> None:
    # Only for a child that was not reaped.
    try:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)  # else SIGTERM waits until somebody continues a process that was stopped
    except PermissionError:  # it runs as another user
        return


def _kill_groups(pids: Iterable[int]) -> None:
    for pid in pids:
        _kill_group(pid)


def _kill_group(pid: int) -> None:
    # Only for a child that was not reaped: its process group exists, and is ours. Never kills our own group.
    for kill, number in ((os.killpg, os.getpgid(pid)), (os.kill, pid)):
        try:
            if number != os.getpgrp():
                kill(number, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")  # Python 3.12 warns of a fork beside threads
    folder = os.path.join(temporary_root(), f"tfdist-{os.urandom(6).hex()}")
    fork_reaper(folder)
    Agent(folder).run()
    os._exit(0)  # threads may still wait for something
