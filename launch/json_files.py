"""The JSON files of tfdist. NaN and infinity become null, and a file is replaced whole or not at all."""

import errno
import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tfdist.launch.typed_json import parse_json

LARGEST = 64 << 20
"""Bytes of a file that is read whole; those of tfdist are smaller."""
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags of a file that must not exist, not even as a link to another one."""


def dumps(data: Any, indent: int | None = None) -> str:
    """`data` as JSON. JSON has no NaN or infinity (the loss of a training that diverged): they become null."""
    return json.dumps(finite(data), indent=indent, allow_nan=False)


def open_regular(path: Path | str, *, folder: int | None = None, follow: bool = True) -> BinaryIO:
    """Open a file for reading that anybody may have put there. Never waits: a FIFO would.

    Args:
        path: of the file; relative to `folder`, a descriptor, if that is given.
        folder: descriptor of the folder in which it is looked up.
        follow: whether it may be a link.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    return _regular(os.open(path, flags, dir_fd=folder), path, "rb")


def read_bytes(path: Path | str, limit: int = LARGEST) -> bytes:
    """The content of a file that anybody may have put there.

    Raises:
        OSError: it cannot be opened, is no regular file, or has more than `limit` bytes.
    """
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", str(path))
    return data


def read_json(path: Path) -> Any:
    """The value in a file; None if it cannot be read, is not a regular file of at most 64 MiB, or is not JSON."""
    try:
        return parse_json(read_bytes(path))
    except (OSError, ValueError):
        return None


def save_json(path: Path, data: Any) -> None:
    """Replace a file by `data` as JSON, as `replace_file` does."""
    replace_file(path, f"{dumps(data, indent=1)}\n".encode())


def replace_file(path: Path, data: bytes, mode: int = 0o666, *, sync: bool = True) -> None:
    """Write `data` to a new file beside `path`, then move it there: readers never see half a file, nor after a crash.

    The file gets the permissions in `mode` that the umask allows. A link at `path` is replaced, not followed. Without
    `sync` a crash of the machine may lose it: that is for a file that is written every few seconds.

    Raises:
        OSError: that failed; an earlier file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name[:100]}.{os.urandom(6).hex()}")
    descriptor = os.open(partial, NEW_FILE, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(descriptor)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def open_append(path: Path) -> BinaryIO:
    """Open a file for reading and for writing at its end, or create it. Never waits: a FIFO would.

    Raises:
        OSError: it cannot be opened, is a link, or no regular file: anybody may have put that there.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return _regular(os.open(path, flags, 0o666), path, "ab+")


def overwrite(path: Path, data: bytes) -> None:
    """Write `data` in place of the content of a file that cannot be replaced, as one that is mounted into a container.

    Raises:
        OSError: it cannot be opened, is a link, or no regular file.
    """
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with _regular(os.open(path, flags), path, "wb") as file:
        file.truncate(0)
        file.write(data)


def _regular(descriptor: int, path: Path | str, mode: str) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    file: Any = os.fdopen(descriptor, mode)
    return file  # type: ignore[no-any-return]


def append_line(path: Path, text: str) -> None:
    """Append `text` as a line. A line before it that was cut off (killed, disk full) keeps a line of its own.

    Raises:
        OSError: as for `open_append`.
    """
    with open_append(path) as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            text = text if file.read(1) == b"\n" else f"\n{text}"
        file.write(f"{text}\n".encode())


def finite(value: Any) -> Any:
    """JSON values with null in place of NaN and infinity."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
