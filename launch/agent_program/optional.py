"""Functions that not every Python on Linux has, each with what replaces it. Part of the agent.

A Python that was built against an older C library or older kernel headers lacks what came later: conda's builds, the
standalone ones of uv, and pyenv's on an old distribution. We assume glibc 2.12 and Linux 2.6.32, older than what
TensorFlow supports. ctypes is missing if libffi was when Python was built, and a static build can load no library.
A newer Python may still run on an older kernel, or in a sandbox that refuses a system call.
Nothing else in tfdist uses these functions (tests/launch/agent_program/test_optional.py).
"""

import errno
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

_ctypes: ModuleType | None
try:
    import ctypes as _ctypes
except ImportError:
    _ctypes = None
HAS_CTYPES = _ctypes is not None

SO_REUSEPORT: int = getattr(socket, "SO_REUSEPORT", 15)
"""Linux 3.9. The number is that of all processors that TensorFlow supports."""
CLOCK_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", 7)
"""glibc 2.14."""
_SEEK_DATA: int = getattr(os, "SEEK_DATA", 3)
"""Linux 3.1 has it whatever Python was built with."""
_REFUSED = (errno.ENOSYS, errno.EPERM)
"""The kernel is too old for a system call, or a sandbox refuses it."""


def _find_libc() -> Any:
    """The C library that runs this process; None if it cannot be called."""
    with suppress(OSError):
        return _ctypes.CDLL(None, use_errno=True) if _ctypes else None
    return None


_LIBC = _find_libc()


def prctl(option: int, value: int) -> bool:
    """Set an attribute of this process (man 2 prctl); returns whether it is set."""
    return _LIBC is not None and hasattr(_LIBC, "prctl") and _LIBC.prctl(option, value, 0, 0, 0) == 0


def trim_heap() -> None:
    """Give the memory back that the C library keeps for later allocations. Only glibc keeps much."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def overwrite(address: int, data: bytes) -> None:
    """Write into the memory of this process. Only with HAS_CTYPES."""
    if _ctypes:
        _ctypes.memmove(address, data, len(data))


def memory_at(address: int, size: int) -> bytes:
    """What the memory of this process holds. Only with HAS_CTYPES."""
    return bytes(_ctypes.string_at(address, size)) if _ctypes else b""


def never_free(value: object) -> None:
    """Keep an object until the process has ended, also while Python ends. Only with HAS_CTYPES."""
    if _ctypes:
        _ctypes.pythonapi.Py_IncRef(_ctypes.py_object(value))


def run_in_session(argv: list[str], env: Mapping[str, str], stdin: int) -> None:
    """Run a program in a session of its own, without stdout and stderr, and wait until it exits.

    Raises:
        OSError: it cannot be started.
    """
    null = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), *null]
    try:  # needs no copy of the page tables, and no import
        pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True)
    except (AttributeError, NotImplementedError):  # setsid: glibc 2.26
        import subprocess

        null_stream = subprocess.DEVNULL
        subprocess.call(argv, stdin=stdin, stdout=null_stream, stderr=null_stream, env=env, start_new_session=True)
        return
    os.waitpid(pid, 0)


def memory_file() -> int:
    """A descriptor of a new file without a name, in memory (Linux 3.17, glibc 2.27) or else in the temporary folder.

    Raises:
        OSError: it cannot be created.
    """
    with suppress(AttributeError, OSError):
        return os.memfd_create("tfdist")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def signal_process(pid: int, number: int, verify: Callable[[], object]) -> None:
    """Send a signal to the process that `verify` recognizes by its pid; `verify` raises if it is another one.

    Where a process can be held by a descriptor (Linux 5.3, Python built with its headers), the pid cannot become that
    of another process in between. Elsewhere `verify` runs just before the signal: only if the process ends within these
    microseconds, is reaped, and the kernel gives its pid to another process of this user, does that one get the signal.

    Raises:
        ProcessLookupError: it has ended.
        PermissionError: it is not ours.
    """
    try:
        process = os.pidfd_open(pid)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _REFUSED:
            raise
        verify()
        os.kill(pid, number)
        return
    try:
        verify()
        try:
            signal.pidfd_send_signal(process, number)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _REFUSED:
                raise
            os.kill(pid, number)  # says again if it is not ours
    finally:
        os.close(process)


def limit_open_files(pid: int, limit: tuple[int, int] | None = None) -> tuple[int, int]:
    """Soft and hard limit of the open files of a process until now; with `limit` these are the new ones.

    Raises:
        OSError: it has exited, or may not be changed, or this Python cannot do so.
    """
    if hasattr(resource, "prlimit"):  # glibc 2.13
        arguments = () if limit is None else (limit,)
        return resource.prlimit(pid, resource.RLIMIT_NOFILE, *arguments)
    if _ctypes is None or not hasattr(_LIBC, "prlimit64"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    pair = _ctypes.c_uint64 * 2
    new = None if limit is None else pair(*limit)
    old = pair()
    if _LIBC.prlimit64(pid, resource.RLIMIT_NOFILE, new, old):
        raise OSError(_ctypes.get_errno(), os.strerror(_ctypes.get_errno()))
    return old[0], old[1]


def start_of_data(descriptor: int, offset: int) -> int:
    """Where the next data of a file begins, from this offset on: a hole may be as long as a file can be.

    Raises:
        OSError: none follows (ENXIO).
    """
    try:
        return os.lseek(descriptor, offset, _SEEK_DATA)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Linux 3.1
            raise
        return offset


def schedule_in_batches() -> None:
    """Let a thread that wakes another one continue, unless the process has a policy; musl and sandboxes refuse."""
    with suppress(AttributeError, OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def scheduling() -> str:
    """The scheduling policy of this process: `normal`, `batch` or `other`; `normal` if it cannot be read."""
    with suppress(AttributeError, OSError):
        return {os.SCHED_OTHER: "normal", os.SCHED_BATCH: "batch"}.get(os.sched_getscheduler(0), "other")
    return "normal"
