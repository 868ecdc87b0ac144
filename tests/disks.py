"""Small file systems, which are soon full."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

END_S = 15.0
"""A process of the test may still end."""


@contextmanager
def small_disk(parent: Path, kibibytes: int) -> Iterator[Path]:
    """The folder `disk` in `parent`, a file system of its own; skips the test where it cannot be mounted."""
    folder = parent / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting needs root")
    yield folder
    until = time.monotonic() + END_S
    while (done := subprocess.run(["umount", str(folder)], capture_output=True, text=True)).returncode:
        assert time.monotonic() < until, done.stderr
        time.sleep(0.05)
