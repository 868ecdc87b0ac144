"""`tfdist sbatch`: the batch script of a Slurm job that runs another command of tfdist."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tfdist.cli.command import given_words, secrets
from tfdist.cli.options import option, refuse_tf_config
from tfdist.cli.scheduler import HOST_NAMES, WITHOUT_EFFECT, PlanOn, check_parameters, refuse, schedule
from tfdist.jobs.host_selection import HostSelection, imagined
from tfdist.jobs.request import Request
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import assign_slots
from tfdist.launch.policy import Policy
from tfdist.launch.schedulers import slurm
from tfdist.launch.schedulers.slurm import SlurmJob, signal_time_s
from tfdist.launch.text import is_utf8
from tfdist.strategies.options import variable_of

# Options of sbatch that the script has from an option of tfdist with the same name.
_OURS = ("nodes", "exclusive", "gpus-per-node", "requeue", "partition", "time")


@dataclass(frozen=True)
class Sbatch:
    """Prints the script of a job."""

    job: SlurmJob
    """With 0 nodes, their number was not given."""

    def select(self, ctx: typer.Context, values: Mapping[str, Any]) -> HostSelection:
        """Nodes of any name: which ones Slurm allocates, it decides later.

        Raises:
            TfdistError: an option names hosts.
        """
        refuse(ctx, HOST_NAMES, "the nodes of the Slurm job are the hosts")
        hosts = tuple(Host(f"node{number}", f"node{number}") for number in range(1, self.job.nodes + 1))
        return HostSelection(hosts, values.get("workers_per_host"))

    def submit(self, ctx: typer.Context, plan: PlanOn, policy: Policy, job: Request | None = None) -> None:
        """Print the script.

        Raises:
            TfdistError: an option is wrong, or such nodes cannot run the command.
        """
        if self.job.nodes < 1:
            raise TfdistError("--nodes: missing option; give the number of nodes")
        check_parameters(ctx, "sbatch")
        selection = self.select(ctx, ctx.params)
        raw = {host: imagined(host, self.job.gpus_per_node) for host in selection.hosts}
        # a suite sets the number of workers of each arm
        planned = plan(raw if job is None else assign_slots(raw, selection.per_host, job.devices))
        script = self._script(ctx, policy, saves=planned.checkpointing is not None)
        for line in (*planned.notes, *(f"warning: {warning}" for warning in planned.warnings)):
            typer.echo(line, err=True)
        for name in (text.partition("=")[0] for text in secrets(ctx)):
            typer.echo(f"the value of {name} is not printed: set {name} before you submit the job", err=True)
        typer.echo(script, nl=False)

    def _script(self, ctx: typer.Context, policy: Policy, *, saves: bool) -> str:
        """The script; a job that `saves` checkpoints gets a signal in time."""
        for_others = (*HOST_NAMES, *WITHOUT_EFFECT)
        words = given_words(ctx, for_others, "pass it with --env")
        wrong = next((word for word in (*words, *self.job.options) if not is_utf8(word)), None)
        if wrong is not None:
            raise TfdistError(f"{wrong!r}: not valid UTF-8, as a batch script must be; use another name")
        return self.job.script(
            str(ctx.params.get("name") or ctx.info_name),
            ("tfdist", str(ctx.info_name), "--transport", slurm.TRANSPORT, *words),
            requeue=ctx.params.get("requeue") is not None,
            signal_s=signal_time_s(policy.grace_s) if saves else None,
            unset=[name for name in map(variable_of, for_others) if name in os.environ],
        )


def parse_option(text: str) -> str:
    """An option of sbatch such as `--qos=high`, without `--`.

    Raises:
        TfdistError: it is not a long option, or tfdist has an option for it.
    """
    match = re.fullmatch(r"(?:--)?([a-z][a-z0-9-]*)(=[^\n]+)?", text)
    if match is None:
        raise TfdistError(f"--sbatch-option {text!r}: not NAME or NAME=VALUE; use a long option of sbatch, as qos=high")
    if match[1] in _OURS:
        raise TfdistError(f"--sbatch-option {text}: use --{match[1]}")
    return text.removeprefix("--")


def sbatch(
    ctx: typer.Context,
    nodes: Annotated[int | None, option("--nodes", "Number of nodes.", slurm.NAME)] = None,
    gpus_per_node: Annotated[int, option("--gpus-per-node", "GPUs of each node. Default: none.", slurm.NAME)] = 0,
    partition: Annotated[
        str | None, option("--partition", "Partition. Default: that of the cluster.", slurm.NAME)
    ] = None,
    time: Annotated[
        str | None, option("--time", "Time limit, as sbatch takes it: 30, 2:00:00, 1-0.", slurm.NAME)
    ] = None,
    exclusive: Annotated[
        bool,
        option("--exclusive/--no-exclusive", "Whole nodes; else add --sbatch-option cpus-per-task=8.", slurm.NAME),
    ] = True,
    sbatch_option: Annotated[
        list[str] | None,
        option("--sbatch-option", "Another option of sbatch, for example qos=high. Repeatable.", slurm.NAME),
    ] = None,
) -> None:
    """Print a Slurm batch script that runs another command.

    The command's options are checked now, for such nodes. Nothing is started.

    \b
    Examples:
      tfdist sbatch --nodes 2 launch --strategy multiworker > job.sh && sbatch job.sh
      tfdist sbatch --nodes 2 --gpus-per-node 4 launch --preset reference | sbatch
      tfdist sbatch --nodes 4 --partition gpu --time 1-0 launch -- python train.py
      tfdist sbatch --nodes 2 launch --requeue 10 --checkpoint-every 10m \\
        --checkpoint-dir ckpt --resume auto | sbatch
      tfdist sbatch --nodes 2 --gpus-per-node 8 bench --suite hosts | sbatch

    The command runs on the first node, and reaches the others with srun.

    A launch that saves checkpoints gets SIGUSR2 three minutes before its time limit, and ends with exit code 42.

    With --requeue it then continues in a new job of the same number.
    """
    if nodes is not None and nodes < 1:
        raise TfdistError(f"--nodes {nodes}: must be at least 1")
    if gpus_per_node < 0:
        raise TfdistError(f"--gpus-per-node {gpus_per_node}: must not be negative; omit it for none")
    refuse_tf_config()
    named = [f"{name}={value}" for name, value in (("partition", partition), ("time", time)) if value is not None]
    options = (*named, *map(parse_option, sbatch_option or ()))
    schedule(ctx, Sbatch(SlurmJob(nodes or 0, gpus_per_node, exclusive, options)))
