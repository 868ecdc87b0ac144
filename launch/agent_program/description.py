"""What a host offers: cores, memory, GPUs, versions. Part of the agent."""

import os
import re
import socket
import sys
from typing import Any

from tfdist.launch.agent_program.cgroups import cgroup_cores, cgroup_memory
from tfdist.launch.agent_program.files import first_value, read_text, temporary_root
from tfdist.launch.agent_program.gpus import describe_gpus

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
        **describe_gpus(),
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
    return first_value("/proc/cpuinfo", "model name") or os.uname().machine


def _memory_free() -> int:
    available = first_value("/proc/meminfo", "MemAvailable").split()  # counts the page cache as free
    return int(available[0]) * 1024 if available else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _busy() -> float:
    # The number of cores in use: the average of the last minute, but no more than the threads that run or wait for a
    # core now, this one not counted (man 5 proc, loadavg). The average alone would still count a job that has ended.
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


def _disk_free(folder: str) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
