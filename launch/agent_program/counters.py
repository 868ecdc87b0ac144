"""What may slow a task down, as the kernel counts it. Part of the agent."""

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress

from tfdist.launch.agent_program.description import cgroup_folders
from tfdist.launch.agent_program.gpus import CPUS
from tfdist.launch.agent_program.system import busy_and_stolen_s, process_stat, read_text


def counters(pid: int, pids: list[int], cpu_s: Mapping[int, float]) -> dict[str, float]:
    """Counters of a task since its start or that of its host, and what holds now.

    `time_s`; `throttled_s` of its cgroups; of the cores that it may use: `cores`, their number, `steal_s` by other
    virtual machines, `other_busy_s` by other programs than the tasks `pids` of its job, `clock_share`, the lowest
    frequency as a part of the highest one possible (1: unknown); `major_faults`, pages read from a disk; `sent` and
    `resent` TCP segments; `disk_free_share` of its folder.

    Args:
        pid: of the task.
        pids: of all tasks of its job here, each of which leads a session.
        cpu_s: what the sessions have used, as `session_cpu_s`.
    """
    cores = _affinity(pid)
    if not cores:  # it has ended
        return {}
    busy_s, steal_s = busy_and_stolen_s(cores)
    return {
        "time_s": time.monotonic(),
        "throttled_s": throttled_s(pid),
        "cores": len(cores),
        "steal_s": steal_s,
        "other_busy_s": busy_s - sum(cpu_s.get(each, 0.0) for each in pids if cores & _affinity(each)),
        "clock_share": min(map(_clock_share, cores)),
        "major_faults": float((process_stat(pid) or ["0"] * 10)[9]),
        **_segments(pid),
        "disk_free_share": _disk_free_share(pid),
    }


def _affinity(pid: int) -> set[int]:
    with suppress(OSError):
        return os.sched_getaffinity(pid)
    return set()


def session_cpu_s() -> dict[int, float]:
    """CPU seconds of the processes of each session, and of their children that have ended (man 5 proc_pid_stat)."""
    used = dict[int, float]()
    for stat in [process_stat(int(name)) for name in os.listdir("/proc") if name.isdigit()]:
        if stat:
            used[int(stat[3])] = used.get(int(stat[3]), 0.0) + sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")
    return used


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
