"""Limits of CPU time, as a container has them."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOTS = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
"""One of version 1, one of version 2."""
EMPTY_S = 10.0


def missing() -> str:
    """Why this machine cannot limit CPU time; empty if it can."""
    root = _root()
    if root is None or not os.access(root, os.W_OK):
        return "no cgroups that can be changed"
    controllers = root / "cgroup.subtree_control"
    if controllers.exists() and "cpu" not in controllers.read_text(encoding="ascii").split():
        return f"{root}: groups have no limit of CPU time; write +cpu into cgroup.subtree_control"
    return ""


def _root() -> Path | None:
    return next((folder for folder in ROOTS if folder.is_dir()), None)


@contextmanager
def limited(pid: int, cores: float, period_us: int = 100_000) -> Iterator[None]:
    """Put a process and its later children into a cgroup with a limit of CPU time. Needs root.

    Args:
        cores: how many cores they may use, 0.25 for example.
        period_us: they stand still for the rest of each period in which they have used their part.
    """
    reason = missing()
    root = _root()
    if reason or root is None:
        raise SystemExit(reason)
    group = root / f"tfdist-lab-{pid}"
    quota_us = round(cores * period_us)
    group.mkdir()
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota_us} {period_us}", encoding="ascii")
        else:
            (group / "cpu.cfs_period_us").write_text(str(period_us), encoding="ascii")
            (group / "cpu.cfs_quota_us").write_text(str(quota_us), encoding="ascii")
        (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
        yield
    finally:
        _remove(group, root)


def _remove(group: Path, root: Path) -> None:
    """Remove a group; its processes return to `root`."""
    until = time.monotonic() + EMPTY_S
    while group.exists() and time.monotonic() < until:
        for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
            (root / "cgroup.procs").write_text(pid, encoding="ascii")
        try:
            group.rmdir()
        except OSError:  # a process is just starting another one
            time.sleep(0.1)
