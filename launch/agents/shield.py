"""Keeps a program from opening files and connections: srun must not kill its step when Slurm ends the job.

Slurm sends SIGTERM to all processes of a job, and SIGKILL `KillWait` later. srun does not wait: on SIGTERM, it sends
SIGKILL to all processes of its step, over a new connection. But agent and tasks save a checkpoint then, and srun
carries their messages, for which it needs no new connection. It needs one at the end of the step, and uses a whole core
until it gets it.
"""

import os
import resource
from itertools import count

Limit = tuple[int, int]
"""Soft and hard."""


def shield(pid: int) -> Limit | None:
    """Let the process open nothing more, while what it has open stays open; returns its limit until now.

    None: it has exited, or may not be changed.
    """
    try:
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}  # noqa: PTH208 - numbers, not paths
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        lowest_free = next(number for number in count() if number not in used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, hard))
    except (OSError, ValueError):
        return None
    return soft, hard


def unshield(pid: int, limit: Limit) -> None:
    """Let the process open files and connections again, as before `shield`."""
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
    except (OSError, ValueError):
        return
