"""Functions that run as other users, in a child process: only root can do that."""

import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

US, OTHER, LEADER = 1234, 1235, 1236
"""Users without entries in /etc/passwd; each is in the group of its number."""
GROUP = 2345
"""A group of US and LEADER."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as several users")


def as_user(user: int, function: Callable[[], T], groups: Sequence[int] = ()) -> T:
    """What a function returns in a child process of this user, which can import nothing more; its OSError is raised."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer: tuple[bool, Any] = (False, None)
        try:
            os.setgroups(groups)
            os.setgid(user)
            os.setuid(user)
            answer = (True, function())
        except OSError as error:
            answer = (False, error)
        except BaseException as error:
            answer = (False, AssertionError(repr(error)))
        finally:
            os.write(writer, pickle.dumps(answer))
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        returned, value = pickle.loads(pipe.read())
    os.waitpid(pid, 0)
    if not returned:
        raise value
    return value  # type: ignore[no-any-return]


def make(path: Path, owner: int, mode: int, group: int = 0) -> Path:
    """Create a folder of this owner."""
    path.mkdir()
    os.chown(path, owner, group or owner)
    path.chmod(mode)
    return path


def public_folder() -> Iterator[Path]:
    """A folder of root that every user can reach: those of tmp_path are for their user only."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="it's; ") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        yield folder
