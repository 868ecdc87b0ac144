"""What a host offers: cores, memory, GPUs, versions; and kills for lack of memory. Part of the agent."""

import fcntl
import os
import re
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

from tfdist.launch.agent_program.gpus import describe_gpus
from tfdist.launch.agent_program.system import available_bytes, first_value, read_text, temporary_root


def cgroup_folders(controller: str, root: str = "", pid: int | str = "self") -> list[str]:
    """The folder of a process's cgroup for a controller (`memory`, `cpu`), and those of its ancestors.

    Version 1 if the controller uses it, else version 2. Only folders that are mounted: in a container often just its
    own. `root` is put before each path.
    """
    lines = [line.split(":", 2) for line in read_text(f"{root}/proc/{pid}/cgroup").splitlines()]
    paths = {name: path for _, names, path in lines for name in names.split(",")}
    name = controller if controller in paths else ""  # the line of version 2 names no controllers
    for line in read_text(f"{root}/proc/self/mountinfo").splitlines() if name in paths else ():
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
        limit = read_text(f"{folder}/memory.max") or read_text(f"{folder}/memory.limit_in_bytes")
        used = read_text(f"{folder}/memory.current") or read_text(f"{folder}/memory.usage_in_bytes")
        cached = dict(re.findall(r"(\w*inactive_file) (\d+)", read_text(f"{folder}/memory.stat")))
        dropped = cached.get("total_inactive_file") or cached.get("inactive_file") or 0  # total: with descendants
        if limit.strip().isdigit():
            limits.append((int(limit), int(used or 0) - int(dropped)))
    return limits


def cgroup_cores(root: str = "") -> float | None:
    """The number of cores whose time this process's cgroups may use; None: no limit."""
    limits = []
    for folder in cgroup_folders("cpu", root):
        # quota and period; max or -1: no limit
        values = read_text(f"{folder}/cpu.max").split()
        values = values or [read_text(f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if values[0].isdigit():
            limits.append(int(values[0]) / int(values[1]))
    return min(limits, default=None)


def oom_kills(root: str = "") -> int:
    """The number of processes in this process's cgroup that the kernel has killed for lack of memory; 0 if unknown.

    `root` is put before each path.
    """
    for folder in cgroup_folders("memory", root)[:1]:
        counts = read_text(f"{folder}/memory.events") or read_text(f"{folder}/memory.oom_control")
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
        while self.descriptor >= 0:
            try:
                text = os.read(self.descriptor, 1 << 14).decode(errors="replace")  # /dev/kmsg: one record
            except BrokenPipeError:  # records were overwritten
                continue
            except OSError:
                break
            if not text:
                break
            lines = [line.partition(";")[2] for line in text.splitlines()]
            self.lines += [line for line in lines if re.search("Killed process|Out of memory|oom-kill", line)]
        about = [line for line in self.lines if re.search(rf"\b(Killed process |pid=){pid}\b", line)]
        return (about or (self.lines if any_process else []) or [""])[-1]


SIOCGIFADDR = 0x8915
"""The request for the address of an interface."""
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
    "keras_nightly": "keras",
    **dict.fromkeys(TENSORFLOW_NAMES, "tensorflow"),
}
"""The distributions whose versions the hello reports, and the package that each installs."""


def describe() -> dict[str, Any]:
    """This host as JSON values. Does not import TensorFlow: versions come from package metadata.

    `cores` are those that tasks may use, the least used first, and `cores_in_use` those of them to which other
    processes are pinned. `core_limit` is the number of cores that cgroups allow, and `busy` the share of all cores of
    the machine, 0..1, that other programs use now.
    """
    busy = busy_share()
    allowed = os.sched_getaffinity(0)
    core_limit = cgroup_cores()
    memory_limits = cgroup_memory()
    use = pinned_processes(allowed)
    cores = usable_cores(use, core_limit)
    kernel = os.uname()
    page = os.sysconf("SC_PAGE_SIZE")
    disk = os.statvfs(temporary_root())
    return {
        "host": socket.gethostname(),
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "packages": package_versions(),
        "cores": cores,
        "cores_in_use": [core for core in cores if use[core]],
        "core_limit": core_limit,
        "cpu": first_value("/proc/cpuinfo", "model name") or kernel.machine,
        "memory_bytes": min([page * os.sysconf("SC_PHYS_PAGES"), *(limit for limit, _ in memory_limits)]),
        "memory_free_bytes": min([available_bytes(), *(max(0, limit - used) for limit, used in memory_limits)]),
        "disk_free_bytes": disk.f_bavail * disk.f_frsize,
        **describe_gpus(),
        "os": f"{kernel.sysname} {kernel.release}",
        "machine": kernel.machine,
        "interfaces": interface_addresses(),
        "busy": min(busy, busy_share()),
    }


def interface_addresses() -> dict[str, list[str]]:
    """The addresses of each network interface, IPv4 first (man 7 netdevice); without those that only hold on a link."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                request = struct.pack("256s", name.encode()[:15])
                found[name] = [socket.inet_ntoa(fcntl.ioctl(any_socket, SIOCGIFADDR, request)[20:24])]
    for line in read_text("/proc/net/if_inet6").splitlines():
        digits, _, _, scope, _, name = line.split()
        if scope == "00":
            found.setdefault(name, []).append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found


def package_versions() -> dict[str, str]:
    """The version of each installed package of `PACKAGES`."""
    # The names of the .dist-info folders: 30 times faster than importlib.metadata, which parses each file.
    versions: dict[str, str] = {}
    pattern = re.compile(r"([A-Za-z0-9_.]+)-([^-]+)\.dist-info$")
    for folder in sys.path:
        with suppress(OSError):  # a zip, missing, or unreadable: Python skips it too
            for match in filter(None, map(pattern.match, sorted(os.listdir(folder)))):
                package = PACKAGES.get(match[1].lower().replace(".", "_"))
                if package is not None:
                    versions.setdefault(package, match[2])
    return versions


def busy_share() -> float:
    """Share of the cores in use: the average of the last minute, but no more than the threads that run or wait for one.

    This thread is not counted (man 5 proc, loadavg). The average alone would still count a job that has ended.
    """
    average, _, _, running, *_ = read_text("/proc/loadavg").split() or ("0", "", "", "1/1")
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
        if shared and shared != allowed and read_text(f"/proc/{pid}/cmdline"):
            for core in shared:
                use[core] += 1 / len(shared)
    return use


def usable_cores(use: dict[int, float], limit: float | None) -> list[int]:
    """The cores, the least used first; at most `limit`, rounded up."""
    cores = sorted(use, key=lambda core: (use[core], core))
    return cores if limit is None else cores[: max(1, int(-(-limit // 1)))]
