"""The JSON files of tfdist. NaN and infinity become null, and a file is replaced whole or not at all."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO


def dumps(data: Any, indent: int | None = None) -> str:
    """`data` as JSON. JSON has no NaN or infinity (the loss of a training that diverged): they become null."""
    return json.dumps(_finite(data), indent=indent, allow_nan=False)


def read_json(path: Path) -> Any:
    """The value in a file; None if it cannot be read, or is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def save_json(path: Path, data: Any, mode: int = 0o666) -> None:
    """Write `data` to a temporary file beside `path`, then move it there: readers never see half a file.

    The file gets the permissions in `mode` that the umask allows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.touch(mode)
        partial.write_text(dumps(data, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def append_line(path: Path, text: str) -> None:
    """Append `text` as a line. A line before it that was cut off (killed, disk full) keeps a line of its own."""
    with path.open("ab+") as file:
        if file.tell() and not _ends_line(file):
            text = f"\n{text}"
        file.write(f"{text}\n".encode())


def _ends_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
