"""What the threads of a task do: from its own signal handler, from py-spy, or from /proc. Part of the agent."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tfdist.launch.agent_program import system

HANDLER_S, HANDLER_PAUSE_S = 3.0, 0.2
"""Time limit of a process to start to write its stacks; they are complete after this pause."""
DUMP_S = 10.0
"""Time limit for all tasks of the host; then py-spy is no longer used."""
MOST_PROCESSES = 8
"""Processes of one task that are examined without its help."""
SUSPENDED = ("T", "t", "Z", "X")
"""States of processes that handle no signal."""


def catches_signal(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal (SigCgt in man 5 proc_pid_status), and is not suspended."""
    caught = int(system.first_value(f"/proc/{pid}/status", "SigCgt") or "0", 16)
    return bool(caught >> (number - 1) & 1) and system.process_state(pid) not in SUSPENDED


def request_stacks(session: int, pid: int, number: int) -> bool:
    """Send the signal that makes a process write its stacks, if it is in the session and catches it."""
    with suppress(OSError):  # it has ended, or runs as another user
        if system.process_stat(pid)[3:4] == [str(session)] and catches_signal(pid, number):
            os.kill(pid, number)
            return True
    return False


def wait_for_stacks(written_at: Callable[[], float], since: float) -> bool:
    """Wait until a process has written its stacks; returns whether it has. Times are monotonic.

    Args:
        written_at: returns when it last wrote any.
        since: the time of the signal.
    """
    while time.monotonic() < since + HANDLER_S:
        if since <= written_at() <= time.monotonic() - HANDLER_PAUSE_S:
            return True
        time.sleep(0.02)
    return since <= written_at()


def examine_stacks(session: int, deadline: float, full: bool = False) -> tuple[str, str]:
    """The method, `py-spy` or `/proc`, and what it shows of the Python processes of a session, or of all if none is.

    Args:
        session: the pid of its first process.
        deadline: monotonic; py-spy is not started after it.
        full: with the frames of C and C++, for which a process pauses for a moment; and what /proc shows.
    """
    running = map(int, filter(str.isdigit, os.listdir("/proc")))
    pids = [pid for pid in running if system.process_stat(pid)[3:4] == [str(session)]]
    pids = ([pid for pid in pids if is_python(pid)] or pids)[:MOST_PROCESSES]
    spied = {pid: spy_stacks(pid, full) if time.monotonic() < deadline else "" for pid in pids}
    seen = ""
    for pid, text in spied.items():
        seen += text
        if full or not text:
            seen += proc_threads(pid)
    return "py-spy" if any(spied.values()) else "/proc", seen


def spy_stacks(pid: int, native: bool = False) -> str:
    """What py-spy shows of a process; empty if it is not installed or fails. The process continues unless `native`."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    spy = system.find_program("py-spy") or (beside if os.access(beside, os.X_OK) else None)
    if spy is None or system.process_state(pid) in SUSPENDED or not is_python(pid):
        return ""
    how = "--native" if native else "--nonblocking"
    dump = system.output_of([spy, "dump", how, "--full-filenames", "--pid", str(pid)])
    return stack_header("py-spy", pid) + dump if dump else ""


def is_python(pid: int) -> bool:
    """Whether a process runs a Python interpreter."""
    with suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    return False


def proc_threads(pid: int) -> str:
    """The threads of a process, those in the same state as one line."""
    alike: Counter[str] = Counter()
    for thread in sorted(os.listdir(f"/proc/{pid}/task") if os.path.isdir(f"/proc/{pid}/task") else (), key=int):
        number = f"{pid}/task/{thread}"
        state = system.process_state(number) or "?"
        wait = system.wait_channel(number)
        name = system.read_text(f"/proc/{number}/comm").strip()
        call = (system.read_text(f"/proc/{number}/syscall").split() or [""])[0]
        what = f"{'main thread' if thread == str(pid) else 'thread'} {name}: state {state}"
        what += f", waits in {wait}" if wait else ""
        alike[what + (f", system call {call}" if call.isdigit() else "")] += 1
    lines = "".join(f"  {f'{count} x ' if count > 1 else ''}{what}\n" for what, count in alike.items())
    command = " ".join(system.read_text(f"/proc/{pid}/cmdline").split("\0")).strip()[:200]
    return f"{stack_header('/proc', pid)}  {command}, CPU time {system.cpu_time(pid):.1f} s\n{lines}" if lines else ""


def stack_header(method: str, pid: int) -> str:
    """The line before the stacks of one process."""
    return f"--- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} process {pid}, from {method}\n"
