"""The agent: one process on every host of a job. It reserves ports, starts tasks, relays their output and stops them.

The launcher sends the text of this file to a Python on the host, so the file needs only Python 3.10 and its standard
library; tfdist need not be installed there. Agent and launcher then exchange JSON, one object per line, over the
agent's stdin and stdout (`messages.py` is the launcher's side). One thread and one `select` do everything.
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
from typing import Any, NamedTuple

HEARTBEAT_S = 2.0
"""Send a heartbeat after this time without another message."""
COMMAND_TIMEOUT_S = 8.0
"""For nvidia-smi. The launcher waits 14 s for the hello."""
CHUNK = 1 << 16
"""Bytes per read."""
BACKLOG = 1 << 20
"""With more unsent bytes than this, stop reading the tasks' pipes: the tasks block, and our memory stays bounded."""
MAX_CHUNKS_IN_PIPE = 16
"""A pipe holds at most 1 MiB (fs.pipe-max-size)."""
MAX_EVENT_DEPTH = 50
"""A deeper JSON object could exhaust the stack of a recursive reader."""
GPU_DEVICES = "/dev/nvidia[0-9]*"
"""The device files of NVIDIA's kernel driver. Without one, nvidia-smi is not started."""
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
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": _versions(),
        "cores": cores,
        "cores_in_use": [core for core in cores if use[core]],
        "core_limit": core_limit,
        "cpu": _cpu_model(),
        "memory_bytes": min([memory_bytes, *(limit for limit, _ in memory_limits)]),
        "memory_free_bytes": min([_memory_free(), *(max(0, limit - used) for limit, used in memory_limits)]),
        "disk_free_bytes": shutil.disk_usage(temporary_root()).free,
        **_describe_gpus(),
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
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
    return _proc_value("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _memory_free() -> int:
    available = _proc_value("/proc/meminfo", "MemAvailable").split()  # counts the page cache as free
    return int(available[0]) * 1024 if available else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _busy() -> float:
    # The number of cores in use: the average of the last minute, but no more than the threads that run or wait for a
    # core now, this one not counted (man 5 proc, loadavg). The average alone would still count a job that has ended.
    average, _, _, running, *_ = _read("/proc/loadavg").split() or ("0", "", "", "1/1")
    return max(0.0, min(float(average), int(running.partition("/")[0]) - 1.0)) / (os.cpu_count() or 1)


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
    visible, files, tool = os.environ.get("CUDA_VISIBLE_DEVICES"), glob.glob(GPU_DEVICES), shutil.which("nvidia-smi")
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
    """The stdout of a command; empty after a timeout (nvidia-smi hangs if the driver does)."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S).stdout
    except subprocess.TimeoutExpired:
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
    def __init__(
        self, name: str, attempt: int, process: "subprocess.Popen[bytes]", pipes: dict[str, int], barrier: int
    ) -> None:
        self.name, self.attempt, self.process, self.pipes = name, attempt, process, pipes
        self.barrier: int | None = barrier
        self.partial: dict[str, bytes] = {}  # the incomplete last line of each stream
        self.kill_at: float | None = None

    def release(self) -> None:
        """Open the start barrier: the task reads the other end of this pipe until it is closed."""
        if self.barrier is not None:
            os.close(self.barrier)
            self.barrier = None


class Agent:
    """The event loop. A method `_do_<kind>` handles each message; `messages.py` says what the messages mean."""

    def __init__(self) -> None:
        self.grace_s, self.launcher_timeout_s = 5.0, 60.0  # until `Configure`
        self.selector = selectors.EpollSelector()
        self.task_selector = selectors.EpollSelector()  # nested in the other one, so reading all tasks can be paused
        self.tasks: dict[str, _RunningTask] = {}
        self.by_pid: dict[int, _RunningTask] = {}
        self.reserved_sockets: list[socket.socket] = []
        self.unparsed, self.unsent = b"", bytearray()
        self.last_received = self.last_sent = time.monotonic()
        self.finished = self.disconnected = False
        self.expects_heartbeats = False
        self.temporary = os.path.join(temporary_root(), f"tfdist-{os.urandom(6).hex()}")
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
            os.mkdir(self.temporary, 0o700)
            self.unsent += b"\n"  # ends a partial line that a login script may have printed
            self._send("alive", time=time.time())
            self._send("hello", description=describe())
            while not self.finished:
                self._step()
        except Exception as error:
            self._send("leaving", reason=f"{type(error).__name__}: {error}")
            raise
        finally:
            self._clean_up()

    def _step(self) -> None:
        for key, _ in self.selector.select(self._seconds_until_due()):
            key.data()
        now = time.monotonic()
        for task in self.tasks.values():
            if task.kill_at is not None and now >= task.kill_at:
                task.kill_at = None
                _signal_group(task.process.pid, signal.SIGKILL)
        if now - self.last_sent >= HEARTBEAT_S:
            self._send("heartbeat", time=time.time())
        if self.expects_heartbeats and now - self.last_received >= self.launcher_timeout_s:
            self._send("leaving", reason=f"no message from the launcher for {self.launcher_timeout_s:g} s")
            self.finished = self.disconnected = True

    def _seconds_until_due(self) -> float:
        due = [task.kill_at for task in self.tasks.values() if task.kill_at is not None]
        due.append(self.last_sent + HEARTBEAT_S)
        if self.expects_heartbeats:
            due.append(self.last_received + self.launcher_timeout_s)
        return max(0.0, min(due) - time.monotonic())

    # --- the stream to the launcher

    def _receive(self) -> None:
        try:
            chunk = os.read(0, CHUNK)
        except OSError:
            chunk = b""
        self.last_received = time.monotonic()
        self.finished = self.finished or not chunk  # end of file: the launcher is gone
        *lines, self.unparsed = (self.unparsed + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            getattr(self, "_do_" + message.pop("kind"))(**message)

    def _send(self, kind: str, **values: Any) -> None:
        self.unsent += json.dumps({"kind": kind, **values}).encode() + b"\n"
        self.last_sent = time.monotonic()
        self._flush()

    def _flush(self) -> None:
        # Writes without blocking. The rest follows when the stream is writable; a large rest pauses reading of tasks.
        try:
            del self.unsent[: os.write(1, self.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.finished, self.unsent = True, bytearray()
        self._watch(1, selectors.EVENT_WRITE, self._flush, bool(self.unsent))
        self._watch(self.task_selector.fileno(), selectors.EVENT_READ, self._relay_all, len(self.unsent) < BACKLOG)

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
        home, cwd = os.path.expanduser("~"), os.path.expanduser(cwd)
        exists = os.path.isdir(cwd)
        if package:
            self._unpack(package)
        fallback = home if home_fallback and os.path.isdir(home) else ""
        self._send("prepared", request=request, requested=cwd, actual=cwd if exists else fallback)

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

        self._reply_later("dial_result", request, lambda: {"failures": dial_all(targets, token, timeout_s)})

    def _do_measure_link(self, request: int, address: str, port: int, token: str, seconds: float) -> None:
        from tfdist.launch.agents.probe import measure_link

        self._reply_later("link_speed", request, lambda: measure_link(address, port, token, seconds))

    def _reply_later(self, kind: str, request: int, compute: Callable[[], dict[str, Any]]) -> None:
        def run() -> None:
            self.replies.append((kind, {"request": request, **compute()}))
            os.write(self.wake_sockets[1].fileno(), b"\0")

        threading.Thread(target=run, name=kind, daemon=True).start()

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
            pid = self._spawn(task, attempt, argv, env, cwd, cores)
        except (OSError, ValueError) as error:
            self._send("not_started", task=task, attempt=attempt, reason=str(error))
        else:
            self._send("started", task=task, attempt=attempt, pid=pid, time=time.time())

    def _do_inspect(self, request: int, tasks: list[str]) -> None:
        running = {task.name: task.process.pid for task in self.by_pid.values() if task.name in tasks}
        states = {name: _process_state(pid) for name, pid in running.items()}
        waits = {name: _read(f"/proc/{pid}/wchan").strip("0") for name, pid in running.items()}
        self._send("inspected", request=request, states=states, waits=waits)

    def _do_stop(self, tasks: list[str], grace_s: float) -> None:
        # A task gets SIGTERM only once. A later request can only shorten the time until SIGKILL.
        for task in (self.tasks[name] for name in tasks if name in self.tasks):
            task.release()
            deadline = time.monotonic() + grace_s
            if grace_s == 0:
                _signal_group(task.process.pid, signal.SIGKILL)
                task.kill_at = None
            elif task.kill_at is None:
                _signal_group(task.process.pid, signal.SIGTERM)
                task.kill_at = deadline
            else:
                task.kill_at = min(deadline, task.kill_at)

    def _do_release(self, attempt: int) -> None:
        for task in self.tasks.values():
            if task.attempt == attempt:
                task.release()

    # --- tasks

    def _spawn(self, name: str, attempt: int, argv: list[str], env: dict[str, str], cwd: str, cores: list[int]) -> int:
        """Start a task in its own process group and return its pid.

        The child inherits the affinity, so it is pinned before its first instruction.
        """
        events, events_child = os.pipe()
        barrier_child, barrier = os.pipe()
        all_cores = os.sched_getaffinity(0)
        descriptors = {"TFDIST_EVENTS_FD": str(events_child), "TFDIST_BARRIER_FD": str(barrier_child)}
        try:
            os.sched_setaffinity(0, cores or all_cores)
            process = subprocess.Popen(
                argv,
                env=self._task_environment(env) | descriptors,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=(events_child, barrier_child),
                preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        except (OSError, ValueError):
            os.close(events)
            os.close(barrier)
            raise
        finally:
            os.sched_setaffinity(0, all_cores)
            os.close(events_child)
            os.close(barrier_child)
        assert process.stdout is not None
        assert process.stderr is not None
        pipes = {"stdout": process.stdout.fileno(), "stderr": process.stderr.fileno(), "events": events}
        task = self.tasks[name] = self.by_pid[process.pid] = _RunningTask(name, attempt, process, pipes, barrier)
        for stream, descriptor in pipes.items():
            os.set_blocking(descriptor, False)
            self.task_selector.register(descriptor, selectors.EVENT_READ, (task, stream))
        return process.pid

    def _task_environment(self, env: dict[str, str]) -> dict[str, str]:
        # TMPDIR is our own folder unless `env` sets it: TensorFlow leaves files there if killed, and we delete them.
        env = {**os.environ, "TMPDIR": self.temporary, **env}
        if self.package:
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (self.package, env.get("PYTHONPATH"))))
        return env

    def _relay_all(self) -> None:
        for key, _ in self.task_selector.select(0):
            self._relay(*key.data)

    def _relay(self, task: _RunningTask, stream: str) -> bool:
        """Read one chunk of a stream and send its whole lines; keep an incomplete one, unless it is a chunk long.

        Returns:
            Whether there was anything to read.
        """
        descriptor = task.pipes[stream]
        try:
            chunk = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.task_selector.unregister(descriptor)
        lines, newline, rest = (task.partial.pop(stream, b"") + chunk).rpartition(b"\n")
        if chunk and (stream == "events" or len(rest) < CHUNK):
            task.partial[stream], rest = rest, b""
        self._send_lines(task, stream, lines + newline + rest)
        return bool(chunk)

    def _send_lines(self, task: _RunningTask, stream: str, text: bytes) -> None:
        if stream != "events":
            if text:
                decoded = text.decode("utf-8", "surrogateescape")  # bytes that are not UTF-8 travel as surrogates
                self._send("output", task=task.name, attempt=task.attempt, stream=stream, text=decoded)
            return
        for line in text.splitlines():
            try:
                event = dict(json.loads(line))
            except (ValueError, TypeError, RecursionError):
                continue
            if nests_deeper(event, MAX_EVENT_DEPTH):
                continue
            self._send("event", task=task.name, attempt=task.attempt, time=time.time(), event=event)

    # --- signals and exits

    def _watch_signals(self) -> None:
        # SIGCHLD wakes the select; the usual signals finish the agent as the launcher would.
        receive, send = socket.socketpair()
        for end in (receive, send):
            end.setblocking(False)
        self.wake_sockets = (receive, send)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: self._do_finish())
        signal.set_wakeup_fd(send.fileno(), warn_on_full_buffer=False)
        self.selector.register(receive, selectors.EVENT_READ, self._wake)

    def _wake(self) -> None:
        self.wake_sockets[0].recv(CHUNK)
        self._reap()
        while self.replies:
            kind, values = self.replies.pop(0)
            self._send(kind, **values)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.by_pid:
                self._report_exit(self.by_pid.pop(pid), os.waitstatus_to_exitcode(status), usage)

    def _report_exit(self, task: _RunningTask, code: int, usage: resource.struct_rusage) -> None:
        # The exit is sent after all output of the task.
        task.process.returncode, task.kill_at = code, None
        for stream, descriptor in task.pipes.items():
            for _ in range(MAX_CHUNKS_IN_PIPE):
                if descriptor not in self.task_selector.get_map() or not self._relay(task, stream):
                    break
            self._send_lines(task, stream, task.partial.pop(stream, b""))
        task.release()
        self._send(
            "exited",
            task=task.name,
            attempt=task.attempt,
            code=code,
            time=time.time(),
            peak_memory_bytes=usage.ru_maxrss * 1024,
            cpu_s=usage.ru_utime + usage.ru_stime,
            oom_kills=0,
            kernel_log="",
        )

    def _clean_up(self) -> None:
        # As a subreaper, we also inherit orphaned grandchildren, so signal until no child is left.
        for number, seconds in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 3.0)):
            deadline = time.monotonic() + seconds
            signalled: set[int] = set()
            while (alive := _children()) and time.monotonic() < deadline:
                for pid in alive - signalled:
                    _signal_group(pid, number)
                signalled |= alive
                self._reap()
                time.sleep(0.01)
        shutil.rmtree(self.temporary, ignore_errors=True)
        for reserved in self.reserved_sockets:
            reserved.close()
        if not self.disconnected:  # else the write would block
            os.set_blocking(1, True)
            self._flush()


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


def _prctl(option: int, value: int) -> None:
    LIBC.prctl(option, value, 0, 0, 0)


def _process_state(pid: int) -> str:
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _children() -> set[int]:
    # Includes children that have exited but were not reaped.
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return {int(pid) for pid in file.read().split()}


def _signal_group(pid: int, number: int) -> None:
    # Signals the process group of a descendant, but never our own group.
    try:
        group = os.getpgid(pid)
    except ProcessLookupError:
        group = pid  # reaped, but the group may still have members
    try:
        if group != os.getpgrp():
            os.killpg(group, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


if __name__ == "__main__":
    Agent().run()
