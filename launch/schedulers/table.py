"""The schedulers of batch jobs in whose jobs tfdist runs, and what each must tell.

Kubernetes is none of them: tfdist runs outside of its pods, or as one task in each (`launch/kubernetes/`).
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from tfdist.launch.schedulers import slurm


class BatchSystem(Protocol):
    """A module about a scheduler. `environ` is the environment of a process."""

    NAME: str
    """As in messages."""
    COMMAND: str
    """The command of tfdist that prints its batch scripts."""
    TRANSPORT: str
    """Value of --transport that starts agents with `step`."""
    PREFIXES: tuple[str, ...]
    """Prefixes of its variables."""
    LEAKING: tuple[str, ...]
    """Patterns of variables that are for the batch job, and would change its steps."""
    STEP_DIES_ON_SIGTERM: bool
    """SIGTERM, which all processes of a job may get, makes the program that carries a step kill it
    (`agents/channel.py`)."""

    def is_inside(self, environ: Mapping[str, str]) -> bool:
        """Whether the process belongs to a job."""
        ...

    def nodes(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The nodes of the current job. Raises a TfdistError outside of one."""
        ...

    def groups(self, environ: Mapping[str, str]) -> Mapping[str, int]:
        """The group of each node, if steps must name it; else empty. Raises a TfdistError if a node is in two."""
        ...

    def step(self, node: str, group: int | None, hidden: Sequence[str]) -> tuple[str, ...]:
        """The argv prefix that runs a command on a node of the current job, without the `hidden` variables."""
        ...

    def kill_wait_s(self, environ: Mapping[str, str]) -> float:
        """Seconds between the SIGTERM and the SIGKILL with which it ends the current job."""
        ...

    def requeue_command(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """What puts the current job back into the queue; empty if that is impossible."""
        ...

    def restarts(self, environ: Mapping[str, str]) -> int:
        """Number of times that the current job was started again."""
        ...


BATCH_SYSTEMS: tuple[BatchSystem, ...] = (slurm,)
NAMES = " or ".join(system.NAME for system in BATCH_SYSTEMS)


def current(environ: Mapping[str, str]) -> BatchSystem | None:
    """The scheduler whose job the process belongs to; None: it belongs to none."""
    return next((system for system in BATCH_SYSTEMS if system.is_inside(environ)), None)


def with_transport(name: str) -> BatchSystem | None:
    """The scheduler with this value of --transport."""
    return next((system for system in BATCH_SYSTEMS if name == system.TRANSPORT), None)


def leaking_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables of `environ` that no step may see, sorted."""
    patterns = [pattern for system in BATCH_SYSTEMS for pattern in system.LEAKING]
    return tuple(sorted(name for name in environ if any(fnmatchcase(name, pattern) for pattern in patterns)))


def kill_wait_s(environ: Mapping[str, str]) -> float:
    """`BatchSystem.kill_wait_s` of the current job; 0 outside of one."""
    system = current(environ)
    return 0.0 if system is None else system.kill_wait_s(environ)
