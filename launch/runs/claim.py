"""A launcher's claim on a folder: no other one may save there from before this one connects until it ends.

A claim is a lock (flock(2)) on a file in the folder for temporary files. It ends with its process, however that ends.
Launchers of the same user on the same machine see it.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256

from tfdist.launch.agent_program.system import temporary_root

_LONGEST = 100
"""Bytes of the file."""


class ClaimedError(Exception):
    """Another launcher has claimed the folder.

    Attributes:
        pid: its process; 0: unknown.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.pid = pid


@contextmanager
def claim(folder: str) -> Iterator[None]:
    """Claim a folder until the context ends. Where no file can be locked, nothing is claimed.

    Args:
        folder: an absolute path without links, or a URL; it need not exist.

    Raises:
        ClaimedError: another launcher has claimed it.
    """
    name = sha256(os.fsencode(folder)).hexdigest()[:32]
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(_locked(f"{temporary_root()}/tfdist-{os.geteuid()}-{name}.lock"))
        yield


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Lock a file, which holds the number of this process meanwhile.

    Raises:
        ClaimedError: another process has locked it.
        OSError: it cannot be locked.
    """
    with ExitStack() as stack:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, descriptor)
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it belongs to another user", path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ClaimedError(_pid_in(descriptor)) from None
            if os.fstat(descriptor).st_nlink:
                break
            # else another launcher has deleted it at its end, after it was opened here
        with suppress(OSError):  # the disk is full
            os.ftruncate(descriptor, 0)  # a launcher that was killed has left its number
            os.write(descriptor, str(os.getpid()).encode())
        try:
            yield
        finally:
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - before it is unlocked


def _pid_in(descriptor: int) -> int:
    with suppress(OSError, ValueError):  # ValueError: it has not been written yet
        return int(os.pread(descriptor, _LONGEST, 0))
    return 0
