"""What the agent reads of its host, and runs there: clock, small files, folders, ports, commands. Part of the agent."""

import os
import socket
import time
from contextlib import suppress
from typing import Any

from tfdist.launch.agent_program.folders import UnsafeFolderError, make_folder, why_unsafe
from tfdist.launch.agent_program.optional import CLOCK_BOOTTIME, SO_REUSEPORT

COMMAND_TIMEOUT_S = 8.0
"""Time limit of nvidia-smi."""
ABANDONED: dict[int, Any] = {}
"""Commands that did not end in time, by pid. The agent kills them, but never waits for them."""


def find_program(name: str) -> str | None:
    """The path of a program on PATH."""
    paths = (os.path.join(folder, name) for folder in os.get_exec_path())
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def output_of(command: list[str]) -> str:
    """The stdout of a command; empty if it cannot be run, or after a timeout (nvidia-smi hangs if the driver does).

    After a timeout the command is abandoned: in uninterruptible sleep it would not even end when killed.
    """
    import subprocess  # takes time, and only GPUs and py-spy need it

    try:  # in its own process group, so that its children are killed with it
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:
        return ""
    try:
        return process.communicate(timeout=COMMAND_TIMEOUT_S)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        ABANDONED[process.pid] = process
        return ""


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
    reserved.setsockopt(socket.SOL_SOCKET, SO_REUSEPORT, 1)
    try:
        reserved.bind(("", port))
    except OSError:
        reserved.close()
        raise
    return reserved


def listening_ports() -> set[int]:
    """The TCP ports that any process of this host listens on."""
    ports = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError, StopIteration), open(path, encoding="ascii") as lines:  # there may be no IPv6
            next(lines)
            for line in lines:
                _, local, _, state, *_ = line.split(None, 4)
                if state != "0A":  # listening sockets come first; reading all others could take long
                    break
                ports.add(int(local.rpartition(":")[2], 16))
    return ports


NOT_SHARED = "does not hold the file that another host has written there"
"""The reason of a folder that is another one."""
UNSAFE = "is not safe"
"""How the reason of a folder starts that other users could exchange; it ends with a fix."""


def check_folder(path: str, token: str, action: str, working: str = "") -> str:
    """Create the folder and write a file named after the token, or find that file, or remove it.

    Args:
        path: the folder.
        token: letters and digits.
        action: `write`, `read` or `remove`.
        working: the folder in which tasks run; empty: the current one.

    Returns:
        Why that failed; empty if it did not. To find the file, the folder must be writable and safe, too.
    """
    file = os.path.join(path, f".tfdist-{token}")
    try:
        reason = "" if action == "remove" else why_unsafe(path, working)
        if reason:
            return f"{UNSAFE}: {reason}"
        if action == "write":
            make_folder(path)
            with open(file, "w", encoding="ascii") as stream:
                stream.write(token)
        elif action == "read":
            # Listing a folder makes a network file system look for new entries.
            for folder in (os.path.dirname(path), path):
                with suppress(OSError), os.scandir(folder) as entries:
                    next(entries, None)
            if read_text(file) != token:
                return NOT_SHARED
            if not os.access(path, os.W_OK | os.X_OK):
                return "cannot be written (Permission denied)"
        else:
            with suppress(FileNotFoundError):
                os.unlink(file)
    except FileExistsError:
        return "is a file, not a folder"
    except (OSError, ValueError) as error:
        return f"cannot be written ({getattr(error, 'strerror', None) or error})"
    return ""


_EPOCH = time.time() - time.clock_gettime(CLOCK_BOOTTIME)


def event_time() -> float:
    """Seconds since 1970, by a clock that nobody sets while this process runs.

    NTP may set the system's clock, but events must not change their order.
    """
    return _EPOCH + time.clock_gettime(CLOCK_BOOTTIME)


def first_value(path: str, key: str) -> str:
    """The value of the first `key: value` line that starts with `key`; empty if there is none."""
    with suppress(OSError, StopIteration), open(path, encoding="utf-8", errors="replace") as lines:
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(key))
    return ""


def temporary_root() -> str:
    """The folder for temporary files: TMPDIR, /tmp, XDG_RUNTIME_DIR, ~/.cache or ~.

    The first that is a folder, can be written, and in which no other user can exchange our files (`why_unsafe`).

    Raises:
        UnsafeFolderError: there is none. The launcher prints it, with exit code 2.
    """
    home = os.path.expanduser("~")
    reasons = []
    folders = [os.environ.get("TMPDIR"), "/tmp", os.environ.get("XDG_RUNTIME_DIR"), f"{home}/.cache", home]
    for folder in filter(None, folders):
        if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            reason = why_unsafe(folder)
            if not reason:
                return os.path.abspath(folder)
            reasons.append(reason)
    if reasons:
        raise UnsafeFolderError(f"no safe folder for temporary files: {reasons[0]}, or set TMPDIR to one of your own")
    return "/tmp"  # creating a folder there says why it cannot be used


def remove_folder(path: str) -> None:
    """Delete a folder with all that it holds, as far as possible."""
    try:
        os.rmdir(path)  # mostly empty
    except OSError:
        import shutil  # rarely needed

        shutil.rmtree(path, ignore_errors=True)


def process_state(pid: int | str) -> str:
    """`R`, `S`, `T`, `D`, ... as in /proc/PID/stat; empty if the process, or thread `PID/task/ID`, does not exist."""
    return (process_stat(pid) or [""])[0]


def wait_channel(pid: int | str) -> str:
    """The kernel function that a process, or thread `PID/task/ID`, sleeps in; empty if it is unknown."""
    return read_text(f"/proc/{pid}/wchan").strip("0")


def cpu_time(pid: int) -> float:
    """User and system seconds of a process, without its children."""
    ticks = (process_stat(pid) or ["0"] * 13)[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    pages = (read_text(f"/proc/{pid}/statm").split() or ["0", "0"])[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def busy_and_stolen_s(cores: set[int] | None = None) -> tuple[float, float]:
    """Busy and stolen seconds of these cores, or of all together, since the host's start (man 5 proc_stat).

    Busy are user, nice, system, irq and softirq: guests are part of user.
    """
    names = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    lines = (line.split() for line in read_text("/proc/stat").splitlines() if line.startswith("cpu"))
    rows = [[*map(int, ticks), *[0] * 8] for name, *ticks in lines if name in names]
    second = os.sysconf("SC_CLK_TCK")
    busy = sum(row[index] for row in rows for index in (0, 1, 2, 5, 6))
    stolen = sum(row[7] for row in rows)
    return busy / second, stolen / second


def available_bytes() -> int:
    """Memory that new processes can use without swapping; it counts the page cache as free."""
    kibibytes = first_value("/proc/meminfo", "MemAvailable").split()
    return int(kibibytes[0]) * 1024 if kibibytes else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def host_usage() -> dict[str, float]:
    """CPU seconds since the host's start, online cores and available memory, as in `Inspected`."""
    busy_s, steal_s = busy_and_stolen_s()
    return {"busy_s": busy_s, "steal_s": steal_s, "cores": os.cpu_count() or 1, "available_bytes": available_bytes()}


def process_stat(pid: int | str) -> list[str]:
    """State, parent, process group, session, ...: /proc/PID/stat without its first two fields (man 5 proc_pid_stat)."""
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def read_text(path: str) -> str:
    """The text of a file; empty if it cannot be read."""
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""
