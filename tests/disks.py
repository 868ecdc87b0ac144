"""Small file systems, which are soon full."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(parent: Path, kibibytes: int) -> Iterator[Path]:
    """The folder `disk` in `parent`, a file system of its own; skips the test where it cannot be mounted."""
    folder = parent / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a process may still end there
