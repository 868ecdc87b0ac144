"""Which hosts a job may use, and its plan on those that answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tfdist.launch.attempts import SavedState
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job
from tfdist.launch.text import shortened

Hellos = Mapping[Host, Mapping[str, Any]]


@dataclass(frozen=True)
class NextPlan:
    """A job for the next attempt."""

    job: Job
    note: str = ""
    """What is different from the attempt before, as in `3 workers instead of 4 (lost h2)`."""


class HostChoice(Protocol):
    """Decides which hosts a job may use, and plans it again on those that answer."""

    @property
    def elastic(self) -> bool:
        """The number of workers may change, so hosts that were lost, or are new, are connected while the job runs."""

    def wanted(self) -> Sequence[Host]:
        """The hosts that the job may use now. Called in a thread.

        Raises:
            TfdistError: the hosts have changed, but the change is wrong.
        """

    def plan(self, job: Job, hellos: Hellos, saved: SavedState) -> NextPlan:
        """The job of the next attempt; the same object as `job` if nothing changes.

        Args:
            job: of the attempt that has ended.
            hellos: the hosts that answer.
            saved: the checkpoint that it continues from.

        Raises:
            TfdistError: the hosts are too few.
        """


@dataclass(frozen=True)
class SameHosts:
    """All hosts of the job are needed."""

    hosts: tuple[Host, ...]
    elastic: bool = False

    def wanted(self) -> Sequence[Host]:
        """The hosts of the job."""
        return self.hosts

    def plan(self, job: Job, hellos: Hellos, saved: SavedState) -> NextPlan:
        """The same job.

        Raises:
            TfdistError: a host is missing.
        """
        missing = [host.name for host in job.hosts if host not in hellos]
        if missing:
            what = f"{shortened(missing)} is lost" if len(missing) == 1 else f"{shortened(missing)} are lost"
            raise TfdistError(f"{what}, and without --min-workers all hosts are needed", ExitCode.HOST_LOST)
        return NextPlan(job)
