"""The plan of the next attempt of a job whose tasks are all restarted."""

from collections.abc import Callable
from dataclasses import dataclass

from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.errors import raise_problems
from tfdist.launch.job import Job


@dataclass(frozen=True)
class NextPlan:
    """A job for the next attempt."""

    job: Job
    """The same object: its ports are still reserved. Another one passes the preflight before its tasks start."""
    note: str = ""
    """What is different from the attempt before, as in `3 workers instead of 4 (lost h2)`."""


Replan = Callable[[Job, Fleet], NextPlan]
"""Receives the job of the attempt that has ended, and the agents; `Fleet.lost` has the hosts whose agents were lost.

Raises a TfdistError if the job cannot be continued: the run then ends with the outcome of the attempt.
"""


def same_plan(job: Job, fleet: Fleet) -> NextPlan:
    """The same job again.

    Raises:
        TfdistError: one of its hosts is lost.
    """
    raise_problems(fleet.lost[host] for host in job.hosts if host in fleet.lost)
    return NextPlan(job)
