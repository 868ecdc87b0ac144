"""Pythons without functions that not every Python has: removed before any program runs, by a sitecustomize.py."""

import os
from collections.abc import Iterable
from pathlib import Path

WITHOUT_SETSID = """
import os
spawn = os.posix_spawn
def posix_spawn(*arguments, setsid=False, **options):
    if setsid:
        raise NotImplementedError("setsid is not supported on this platform")
    return spawn(*arguments, **options)
os.posix_spawn = posix_spawn
"""
WITHOUT_LIBRARIES = """
import ctypes
load = ctypes._dlopen
def _dlopen(name, *flags):
    if name is None:
        raise OSError("dynamic loading not supported")
    return load(name, *flags)
ctypes._dlopen = _dlopen
"""
REMOVALS = {
    "setsid": WITHOUT_SETSID,
    "memfd_create": "import os; vars(os).pop('memfd_create', None)",
    "pidfd_open": "import os; vars(os).pop('pidfd_open', None)",
    "pidfd_send_signal": "import signal; vars(signal).pop('pidfd_send_signal', None)",
    "prlimit": "import resource; vars(resource).pop('prlimit', None)",
    "CLOCK_BOOTTIME": "import time; vars(time).pop('CLOCK_BOOTTIME', None)",
    "SO_REUSEPORT": "import socket, _socket; [vars(each).pop('SO_REUSEPORT', None) for each in (socket, _socket)]",
    "schedulers": "import os; del os.sched_getscheduler, os.sched_setscheduler",
    "SEEK_DATA": "import os; vars(os).pop('SEEK_DATA', None)",
    "libc": WITHOUT_LIBRARIES,
}
"""The statements that remove each function. TensorFlow runs without all of them."""
WITHOUT_CTYPES = "import sys; sys.modules['_ctypes'] = None"
"""TensorFlow does not run without it."""


def without(folder: Path, removals: Iterable[str]) -> dict[str, str]:
    """The environment of a Python, and of those that it starts, on which these statements have run; `folder` is new."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("\n".join(removals))
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}
