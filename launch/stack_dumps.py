"""Lets the agent ask this process for the stacks of its threads. No TensorFlow."""

import faulthandler
import os
import signal
import stat
from contextlib import suppress
from functools import cache

from tfdist.launch import events

SIGNAL = signal.SIGRTMAX - 3
"""Unused by Python, TensorFlow, CUDA and the C library (man 7 signal)."""


@cache
def dump_on_request() -> None:
    """Make `SIGNAL` write the stacks of all threads to the agent, also while C++ code blocks the main thread.

    Announces it with the event `stacks`. Without a launcher, or if the program handles this signal itself, do nothing.
    """
    descriptor = os.environ.get("TFDIST_STACKS_FD")
    if descriptor is None or signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return
    with suppress(OSError):  # closed: this process was started by a task
        if stat.S_ISFIFO(os.fstat(int(descriptor)).st_mode):
            faulthandler.register(SIGNAL, file=int(descriptor), all_threads=True, chain=False)
            events.emit("stacks", signal=int(SIGNAL), pid=os.getpid())
