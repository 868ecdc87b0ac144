"""The JSON files of tfdist. NaN and infinity become null, and a file is replaced whole or not at all."""

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfdist.launch.typed_json import parse_json

LARGEST = 64 << 20
"""Bytes of a file that is read whole; those of tfdist are smaller."""
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags of a file that must not exist, not even as a link to another one."""


def dumps(data: Any, indent: int | None = None) -> str:
    """`data` as JSON. JSON has no NaN or infinity (the loss of a training that diverged): they become null."""
    return json.dumps(finite(data), indent=indent, allow_nan=False)


def read_json(path: Path) -> Any:
    """The value in a file; None if it cannot be read, is not a regular file of at most 64 MiB, or is not JSON."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would block
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                return None
            return parse_json(file.read(status.st_size))
    except (OSError, ValueError):
        return None


def save_json(path: Path, data: Any) -> None:
    """Replace a file by `data` as JSON, as `replace_file` does."""
    replace_file(path, f"{dumps(data, indent=1)}\n".encode())


def replace_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write `data` to a new file beside `path`, then move it there: readers never see half a file, nor after a crash.

    The file gets the permissions in `mode` that the umask allows. A link at `path` is replaced, not followed.

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
            os.fsync(descriptor)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def append_line(path: Path, text: str) -> None:
    """Append `text` as a line. A line before it that was cut off (killed, disk full) keeps a line of its own."""
    with path.open("ab+") as file:
        if file.tell():
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
