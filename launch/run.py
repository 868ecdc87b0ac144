"""Launch a planned job: connect to its hosts, run its tasks, disconnect."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from tfdist.launch.agents.channel import DESCRIPTORS
from tfdist.launch.agents.connect import SPARE_DESCRIPTORS, allow_descriptors, connect
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.launcher_messages import OnMessage
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy
from tfdist.launch.runs.writer import RunWriter

if TYPE_CHECKING:
    from tfdist.launch.diagnosis.outcome import Outcome
    from tfdist.launch.host_choice import HostChoice

LOGS_PER_TASK = 3
"""Open files of a task: the logs of its stdout and stderr, and its stacks."""


def launch(
    job: Job,
    writer: RunWriter,
    policy: Policy | None = None,
    on_message: OnMessage = lambda _: None,
    *,
    fleet: Fleet | None = None,
    needs_tensorflow: bool = False,
    paced: bool = False,
    hosts: "HostChoice | None" = None,
) -> "Outcome":
    """Run a job to its end. No process is left over, whatever happens.

    Args:
        job: from `plan_job`.
        writer: keeps logs, events and outcome in the run's folder.
        policy: timeouts.
        on_message: called with every message.
        fleet: the agents of the job's hosts, if they are connected already.
        needs_tensorflow: refuse hosts without TensorFlow.
        paced: open the barrier only for each `NextTurn` in the inbox of `fleet`; `policy.timeout_s` limits each turn.
        hosts: plans a restart of all tasks on the hosts that answer; None: the same job on the same hosts.

    Raises:
        TfdistError: an agent could not be started or the preflight failed; no task was started.
    """
    policy = policy or Policy()
    allow_descriptors(SPARE_DESCRIPTORS + DESCRIPTORS * len(job.hosts) + LOGS_PER_TASK * len(job.plans))
    with nullcontext(fleet) if fleet is not None else connect(job.hosts, policy, on_progress=_load_meanwhile) as fleet:
        from tfdist.launch.host_choice import SameHosts
        from tfdist.launch.run_tasks import run_tasks

        return run_tasks(job, fleet, writer, policy, on_message, needs_tensorflow, paced, hosts or SameHosts(job.hosts))


def _load_meanwhile(_: object) -> None:
    """Load what runs the tasks while the agents start: it takes as long."""
    import tfdist.launch.run_tasks  # noqa: F401
