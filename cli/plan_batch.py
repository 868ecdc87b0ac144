"""Plans a batch script: the options of `tfdist sbatch`, checked on imagined nodes. Pure."""

from dataclasses import dataclass

from tfdist.cli.host_selection import imagined
from tfdist.cli.output_tasks import output_tasks
from tfdist.cli.plan_launch import LaunchOptions, plan_request
from tfdist.cli.requeue import check_requeue
from tfdist.launch.batch_script import BatchScript, parse_option, signal_time_s
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import assign_slots
from tfdist.launch.policy import Policy


@dataclass(frozen=True)
class BatchOptions:
    """What Slurm is asked for."""

    name: str
    nodes: int
    exclusive: bool
    gpus_per_node: int
    requeue: int | None
    options: tuple[str, ...]
    """Values of --sbatch-option."""
    output: str
    """Value of --output."""


@dataclass(frozen=True)
class PlannedBatch:
    """A script, and the messages to print beside it."""

    script: BatchScript
    notes: tuple[str, ...]


def plan_batch(
    options: BatchOptions, job: LaunchOptions, per_host: int | None, policy: Policy, words: tuple[str, ...]
) -> PlannedBatch:
    """The script of a job that runs `tfdist launch` with these words on as many nodes with plenty of cores.

    Args:
        options: what Slurm is asked for.
        job: the options of the launch.
        per_host: workers per host; None: one per GPU, or 1.
        policy: its timeouts.
        words: the options of the launch and its command, as on the command line.

    Raises:
        TfdistError: an option is wrong, or such nodes cannot run the job.
    """
    check_requeue(options.requeue, job.recovery, own=bool(job.command))
    others = tuple(map(parse_option, options.options))
    hosts = [Host(f"node{number}", f"node{number}") for number in range(1, options.nodes + 1)]
    raw = {host: imagined(host, options.gpus_per_node) for host in hosts}
    planned = plan_request(job, assign_slots(raw, per_host, job.devices))
    output_tasks(options.output, planned.job)
    script = BatchScript(
        options.name,
        ("tfdist", "launch", "--transport", "srun", *words),
        options.nodes,
        options.exclusive,
        options.gpus_per_node,
        requeue=options.requeue is not None,
        signal_s=signal_time_s(policy.grace_s) if planned.checkpointing is not None else None,
        options=others,
    )
    return PlannedBatch(script, (*planned.notes, *(f"warning: {warning}" for warning in planned.warnings)))
