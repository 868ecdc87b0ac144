"""How a task ended, in words."""

import signal

from tfdist.launch.agents.inbox import Stopped
from tfdist.launch.agents.messages import Exited, Stuck
from tfdist.launch.errors import ExitCode
from tfdist.launch.text import signal_name

_SHELL = 128
"""A shell exits with this plus the number of the signal that killed its program."""


def describe_exit(code: int, place: str = "") -> str:
    """`exited with code 3 on h2`, or `was killed by SIGTERM on h2 (not by tfdist)`; `place` is ` on h2` or empty."""
    number = signal_number(code)
    if number is None:
        return f"exited with code {code}{place}" + (" (restart requested)" if code == ExitCode.PREEMPTED else "")
    name = signal_name(number)
    if code > 0:
        return f"exited with code {code}{place} (its program was killed by {name})"
    return f"was killed by {name}{place}{' (not by tfdist)' if number in _SENT else ''}"


def killed_from_outside(code: int) -> bool:
    """Whether another process, or the kernel for lack of memory, has killed the task or the program in its shell."""
    return signal_number(code) in _SENT


def describe_ending(exit: Exited, place: str = "") -> str:
    """`describe_exit`, and whether the kernel killed the process for lack of memory."""
    if signal_number(exit.code) == signal.SIGKILL and (exit.oom_kills or exit.kernel_log):
        log = f" (kernel log: {exit.kernel_log.strip()})" if exit.kernel_log else ""
        return f"{describe_exit(exit.code, place).removesuffix(' (not by tfdist)')}: out of memory{log}"
    return describe_exit(exit.code, place)


def describe_stopped(exit: Exited, stopped: Stopped, place: str = "") -> str:
    """The end of a task that tfdist stopped: `stopped by tfdist, with SIGKILL after 5 s`."""
    number = signal_number(exit.code)
    if number == signal.SIGKILL:
        seconds = round(max(0.0, exit.time - stopped.time))
        return f"stopped by tfdist{place}, with SIGKILL" + (f" after {seconds} s" if seconds else "")
    if number is not None or exit.code == 0:
        return f"stopped by tfdist{place}"
    return f"stopped by tfdist{place} (exited with code {exit.code})"


def describe_stuck(stuck: Stuck, place: str = "") -> str:
    """`could not be killed on h2 (state D: it waits for rpc_wait)`."""
    wait = f": it waits for {stuck.wait}" if stuck.wait else ""
    return f"could not be killed{place} (state {stuck.state or 'unknown'}{wait})"


def exit_code(code: int) -> int:
    """The exit code of the launcher for that of a task, as in a shell: 128+n for a signal n."""
    return code if code >= 0 else _SHELL - code


def signal_number(code: int) -> int | None:
    """The signal that ended a process or, as its shell reports, the program in it; None: it exited by itself."""
    if code < 0:
        return -code
    return code - _SHELL if code - _SHELL in _REPORTED_BY_SHELLS else None


_SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a process does not cause itself."""
_REPORTED_BY_SHELLS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE,
    signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE, signal.SIGTERM,
)  # fmt: skip
