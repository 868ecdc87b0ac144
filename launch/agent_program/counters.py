"""What may slow a task down, as the kernel counts it. Part of the agent."""

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress

from tfdist.launch.agent_program.description import cgroup_folders
from tfdist.launch.agent_program.system import busy_and_stolen_s, process_stat, read_text

CPUS = "/sys/devices/system/cpu"


def counters(pid: int, pids: list[int]) -> dict[str, float]:
    """Counters of a task since its start or that of its host, and what holds now.

    `time_s`; `throttled_s` of its cgroups; of the cores that it may use: `cores`, their number, `steal_s` by other
    virtual machines, `other_busy_s` by other programs than the tasks `pids` of its job, `clock_share`, the lowest
    frequency as a part of the highest one possible (1: unknown); `major_faults`, pages read from a disk; `sent` and
    `resent` TCP segments; `disk_free_share` of its folder.
    """
    try:
        cores = os.sched_getaffinity(pid)
    except OSError:  # it has ended
        return {}
    busy_s, steal_s = busy_and_stolen_s(cores)
    return {
        "time_s": time.monotonic(),
        "throttled_s": throttled_s(pid),
        "cores": len(cores),
        "steal_s": steal_s,
        "other_busy_s": busy_s - _session_cpu_s({each for each in pids if cores & _affinity(each)}),
        "clock_share": min(map(_clock_share, cores)),
        "major_faults": float((process_stat(pid) or ["0"] * 10)[9]),
        **_segments(pid),
        "disk_free_share": _disk_free_share(pid),
    }


def _affinity(pid: int) -> set[int]:
    with suppress(OSError):
        return os.sched_getaffinity(pid)
    return set()


def _session_cpu_s(sessions: set[int]) -> float:
    """CPU seconds of all processes in these sessions, and of their children that have ended (man 5 proc_pid_stat)."""
    stats = [process_stat(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    ticks = (sum(map(int, stat[11:15])) for stat in stats if stat and int(stat[3]) in sessions)
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def throttled_s(pid: int, root: str = "") -> float:
    """Seconds for which the CPU limits of a process's cgroups kept it from running: its own, and those above it.

    `root` is put before each path.

    Sources: https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files (throttled_usec),
    https://docs.kernel.org/scheduler/sched-bwc.html#statistics (throttled_time, nanoseconds, of cgroup v1).
    """
    text = "".join(read_text(f"{folder}/cpu.stat") for folder in cgroup_folders("cpu", root, pid))
    values = re.findall(r"^throttled_(usec|time) (\d+)$", text, re.MULTILINE)
    return sum((int(value) / (1e6 if unit == "usec" else 1e9) for unit, value in values), 0.0)


def _clock_share(core: int) -> float:
    folder = f"{CPUS}/cpu{core}/cpufreq"
    now, most = (read_text(f"{folder}/{name}").strip() for name in ("scaling_cur_freq", "cpuinfo_max_freq"))
    return int(now) / int(most) if now.isdigit() and most.isdigit() and int(most) else 1.0


def _segments(pid: int) -> Mapping[str, float]:
    """TCP segments of the network in which a process runs: `OutSegs` and `RetransSegs`, as nstat has them."""
    lines = [line.split() for line in read_text(f"/proc/{pid}/net/snmp").splitlines() if line.startswith("Tcp:")]
    values = dict(zip(*lines, strict=False)) if len(lines) == 2 else {}
    return {"sent": float(values.get("OutSegs", 0)), "resent": float(values.get("RetransSegs", 0))}


def _disk_free_share(pid: int) -> float:
    with suppress(OSError):
        disk = os.statvfs(f"/proc/{pid}/cwd")
        return disk.f_bavail / disk.f_blocks if disk.f_blocks else 1.0
    return 1.0
