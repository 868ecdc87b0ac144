"""Small files of /proc and /sys, and folders. Part of the agent."""

import os


def first_value(path: str, key: str) -> str:
    """The value of the first `key: value` line that starts with `key`; empty if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(key))
    except (OSError, StopIteration):
        return ""


def temporary_root() -> str:
    """The folder for temporary files: TMPDIR if it is a folder, else /tmp."""
    folder = os.environ.get("TMPDIR") or "/tmp"
    return os.path.abspath(folder) if os.path.isdir(folder) else "/tmp"


def remove_folder(path: str) -> None:
    """Delete a folder with all that it holds, as far as possible."""
    try:
        os.rmdir(path)  # mostly empty
    except OSError:
        import shutil  # rarely needed

        shutil.rmtree(path, ignore_errors=True)


def process_state(pid: int) -> str:
    """`R`, `S`, `T`, `D`, ... as in /proc/PID/stat; empty if the process does not exist."""
    return (process_stat(pid) or [""])[0]


def only_ends(pid: int) -> bool:
    """Whether a process has ended but for threads, none of which waits for a device (state D)."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return True
    return process_state(pid) == "Z" and not any(thread_state(pid, thread) == "D" for thread in threads)


def thread_state(pid: int, thread: str) -> str:
    """The state of a thread, as `process_state`."""
    return (read_text(f"/proc/{pid}/task/{thread}/stat").rpartition(")")[2].split() or [""])[0]


def wait_channel(pid: int) -> str:
    """The kernel function that a process sleeps in; empty if it is unknown."""
    return read_text(f"/proc/{pid}/wchan").strip("0")


def cpu_time(pid: int) -> float:
    """User and system seconds of a process, without its children."""
    ticks = (process_stat(pid) or ["0"] * 13)[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    pages = (read_text(f"/proc/{pid}/statm").split() or ["0", "0"])[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def host_usage() -> "dict[str, float]":
    """CPU seconds since the host's start, online cores and available memory, as in `Inspected` (man 5 proc_stat).

    busy_s counts user, nice, system, irq and softirq: guests are part of user.
    """
    ticks = [int(value) for value in (read_text("/proc/stat").split("\n", 1)[0].split() or ["cpu"])[1:]]
    ticks += [0] * (8 - len(ticks))
    available = first_value("/proc/meminfo", "MemAvailable").split() or ["0"]
    second = os.sysconf("SC_CLK_TCK")
    return {
        "busy_s": sum(ticks[index] for index in (0, 1, 2, 5, 6)) / second,
        "steal_s": ticks[7] / second,
        "cores": os.cpu_count() or 1,
        "available_bytes": int(available[0]) * 1024,
    }


def process_stat(pid: int) -> list[str]:
    """State, parent, process group, session, ...: /proc/PID/stat without its first two fields (man 5 proc_pid_stat)."""
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def read_text(path: str) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
