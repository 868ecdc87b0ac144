"""Threads and processes, of which the system may refuse more."""

import errno
import os
import threading
from collections.abc import Callable

from tfdist.launch.errors import ExitCode, TfdistError

NO_PROCESSES = (
    "no more processes or threads can be started; raise 'ulimit -u', or the limit of processes of the container or job"
)


def start_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread.

    Raises:
        TfdistError: the system refuses more threads.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    start(thread)
    return thread


def start(thread: threading.Thread) -> None:
    """Start a thread that exists.

    Raises:
        TfdistError: the system refuses more threads.
    """
    try:
        thread.start()
    except RuntimeError:
        raise TfdistError(NO_PROCESSES, ExitCode.FAILED) from None


def is_limit(error: Exception) -> bool:
    """Whether an exception, of a fork or of a thread of a library, says that the system refuses more of them."""
    if isinstance(error, OSError):  # not that of a stream which does not block, which has another text
        return error.errno == errno.EAGAIN and error.strerror == os.strerror(errno.EAGAIN)
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"
