"""Files that others may have written, and the JSON files of tfdist.

A file is read up to a limit, and is a regular one. In JSON, NaN and infinity become null; a file is replaced whole or
not at all.
"""

import errno
import json
import math
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from tfdist.launch.agent_program.text import too_many_values
from tfdist.launch.typed_json import parse_json

LARGEST = 64 << 20
"""Bytes of a file that is read whole; those of tfdist are smaller."""
LARGEST_JSON = 8 << 20
"""Bytes of one JSON value: of a file about a run or a bench, as with more than 1,000 hosts, or of a line of records."""
BYTES_OF_A_VALUE = 20
"""A JSON text has fewer values than its largest number of bytes over this; each takes up to 200 bytes of memory."""
LARGEST_INPUT = 4 << 20
"""Bytes of a file that a user writes, as a hostfile of 10,000 lines."""
LARGEST_RECORD = 16 << 20
"""Bytes of a line of records: those of 200 tasks with 256 windows each. To read one takes less than a second."""
LARGEST_RECORDS = 1 << 30
"""Bytes of a file of JSON lines."""
_CHUNK = 1 << 20
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags of a file that must not exist, not even as a link to another one."""


def dumps(data: Any, indent: int | None = None) -> str:
    """`data` as JSON. JSON has no NaN or infinity (the loss of a training that diverged): they become null."""
    try:
        return json.dumps(data, indent=indent, allow_nan=False)
    except (TypeError, ValueError):  # a Mapping that is no dict; NaN
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
        return at_most(file, limit, path)


def read_input(path: Path | str) -> bytes:
    """The content of a file that the user names. It may be a stream, as in `--hostfile <(command)` or /dev/stdin.

    Raises:
        OSError: it cannot be opened, or has more than LARGEST_INPUT bytes, as /dev/zero has.
    """
    with Path(path).open("rb") as file:
        return at_most(file, LARGEST_INPUT, path)


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a file that the user names, as `read_input` reads it.

    Raises:
        OSError: it cannot be opened, or is too large.
        ValueError: it is not TOML, or nested too deeply.
    """
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    text = read_input(path).decode().replace("\r\n", "\n")
    try:
        table: dict[str, Any] = toml.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return table


def at_most(file: BinaryIO, limit: int, path: Path | str) -> bytes:
    """The rest of an open file; `path` is its name.

    Raises:
        OSError: it has more than `limit` bytes.
    """
    parts = list[bytes]()
    left = limit
    while left >= 0 and (data := file.read(min(_CHUNK, left + 1))):  # in chunks: read(N) takes N bytes at once
        parts.append(data)
        left -= len(data)
    if left >= 0:
        return b"".join(parts)
    raise OSError(errno.EFBIG, f"larger than {limit >> 20} MiB", str(path))


def load_json(path: Path, limit: int = LARGEST_JSON) -> Any:
    """The value in a file that anybody may have put there.

    Raises:
        OSError: it cannot be opened, is no regular file, or has more than `limit` bytes.
        ValueError: it is not JSON, has too many values, or is nested too deeply.
    """
    return parse_bounded(read_bytes(path, limit), limit)


def parse_bounded(data: bytes, limit: int = LARGEST_JSON) -> Any:
    """The value of a JSON text from outside, in memory that `limit`, its largest number of bytes, bounds.

    Raises:
        ValueError: it is not JSON, has too many values, or is nested too deeply.
    """
    most = limit // BYTES_OF_A_VALUE
    if too_many_values(data, most):
        raise ValueError(f"more than {most:,} values")
    return parse_json(data)


def read_json(path: Path, limit: int = LARGEST_JSON) -> Any:
    """The value in a file; None where `load_json` raises an error."""
    try:
        return load_json(path, limit)
    except (OSError, ValueError):
        return None


def read_json_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file of JSON lines that anybody may have put there.

    Raises:
        OSError: it cannot be opened, is no regular file, or has more than LARGEST_RECORDS bytes.
        ValueError: the next line has more than LARGEST_RECORD bytes; no more lines follow.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > LARGEST_RECORDS:
            raise OSError(errno.EFBIG, f"larger than {LARGEST_RECORDS >> 20} MiB", str(path))
        while line := file.readline(LARGEST_RECORD + 1):
            if len(line) > LARGEST_RECORD:
                raise ValueError(f"longer than {LARGEST_RECORD >> 20} MiB; it and the lines after it are not read")
            yield line.removesuffix(b"\n")


def reason_of(error: Exception) -> str:
    """Why a file could not be read, in a message that names it."""
    return str((isinstance(error, OSError) and error.strerror) or error)


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
