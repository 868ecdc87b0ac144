"""Limits of memory and cores that cgroups set, and what the kernel killed for lack of memory. Part of the agent."""

import os
import re

from tfdist.launch.agent_program.files import read_text

RECORD = 1 << 14
"""Bytes that hold any record of /dev/kmsg."""


def cgroup_folders(controller: str, root: str = "") -> list[str]:
    """The folder of this process's cgroup for a controller (`memory`, `cpu`), and those of its ancestors.

    Version 1 if the controller uses it, else version 2. Only folders that are mounted: in a container often just its
    own. `root` is put before each path.
    """
    lines = [line.split(":", 2) for line in read_text(f"{root}/proc/self/cgroup").splitlines()]
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
        files = ("cpu.max",) if os.path.exists(f"{folder}/cpu.max") else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        values = " ".join(
            read_text(f"{folder}/{file}") for file in files
        ).split()  # quota and period; max or -1: no limit
        if len(values) == 2 and values[0].isdigit():
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
        self._read()
        about = [line for line in self.lines if re.search(rf"\b(Killed process |pid=){pid}\b", line)]
        return (about or (self.lines if any_process else []) or [""])[-1]

    def _read(self) -> None:
        while self.descriptor >= 0:
            try:
                text = os.read(self.descriptor, RECORD).decode(errors="replace")  # /dev/kmsg: one record
            except BrokenPipeError:  # records were overwritten
                continue
            except OSError:
                return
            if not text:
                return
            lines = [line.partition(";")[2] for line in text.splitlines()]
            self.lines += [line for line in lines if re.search("Killed process|Out of memory|oom-kill", line)]
