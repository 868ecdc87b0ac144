"""`tfdist sbatch`: the batch script of a Slurm job that runs another command of tfdist."""

import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tfdist.cli.command import given_words, secrets
from tfdist.cli.options import option, refuse_tf_config
from tfdist.cli.scheduler import HOST_NAMES, WITHOUT_EFFECT, PlanOn, check_parameters, refuse
from tfdist.jobs.host_selection import HostSelection, imagined
from tfdist.jobs.launch_plan import LaunchOptions
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import assign_slots
from tfdist.launch.policy import Policy
from tfdist.launch.text import check_name, is_utf8
from tfdist.strategies.options import variable_of

SLURM = "Slurm"
SAVE_S = 180
"""Seconds before the time limit, to save a checkpoint. Slurm may send the signal up to 60 s early
(https://slurm.schedmd.com/sbatch.html#OPT_signal)."""
EARLY_S = 60
_SPECIAL = re.compile(r"[\s#'\"\\]")
# Options of sbatch that the script has from an option of tfdist with the same name.
_OURS = ("nodes", "exclusive", "gpus-per-node", "requeue", "partition", "time")


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm is asked for: a job that runs one command on its first node."""

    nodes: int
    """0: not given."""
    gpus_per_node: int = 0
    exclusive: bool = True
    options: tuple[str, ...] = ()
    """Other options of sbatch, without `--`."""

    def script(self, name: str, command: Sequence[str], *, requeue: bool = False, signal_s: int | None = None) -> str:
        """The text of the batch script.

        Args:
            name: of the job.
            command: its words.
            requeue: Slurm may start the job again, with the same log.
            signal_s: the command gets SIGUSR2 this many seconds before the time limit; None: it does not.

        Raises:
            TfdistError: the name or an option has a line break or another control character.
        """
        for text in (name, *self.options):  # each is in a comment, which ends with its line
            check_name("sbatch", text)
        named = any(option.startswith("job-name=") for option in self.options)
        lines = [] if named else [f"job-name={quoted(name)}"]
        lines += [f"nodes={self.nodes}"]
        if self.exclusive:
            lines.append("exclusive")
        if self.gpus_per_node:
            lines.append(f"gpus-per-node={self.gpus_per_node}")
        if requeue:
            lines += ["requeue", "open-mode=append"]
        if signal_s is not None:
            lines.append(f"signal=B:USR2@{signal_s}")
        for key, equals, value in (each.partition("=") for each in self.options):
            lines.append(f"{key}{equals}{quoted(value)}")
        options = "".join(f"#SBATCH --{line}\n" for line in lines)
        # Slurm gives the job our environment, in which these are for other commands.
        others = [name for name in map(variable_of, (*HOST_NAMES, *WITHOUT_EFFECT)) if name in os.environ]
        unset = f"unset {' '.join(others)}\n" if others else ""
        return f"#!/bin/bash\n{options}{unset}exec {shlex.join(command)}\n"

    def select(self, ctx: typer.Context, values: Mapping[str, Any]) -> HostSelection:
        """Nodes of any name: which ones Slurm allocates, it decides later.

        Raises:
            TfdistError: an option names hosts.
        """
        refuse(ctx, HOST_NAMES, "the nodes of the Slurm job are the hosts")
        hosts = tuple(Host(f"node{number}", f"node{number}") for number in range(1, self.nodes + 1))
        return HostSelection(hosts, values.get("workers_per_host"))

    def submit(self, ctx: typer.Context, plan: PlanOn, policy: Policy, job: LaunchOptions | None = None) -> None:
        """Print the script.

        Raises:
            TfdistError: an option is wrong, or such nodes cannot run the command.
        """
        if self.nodes < 1:
            raise TfdistError("--nodes: missing option; give the number of nodes")
        check_parameters(ctx, "sbatch")
        selection = self.select(ctx, ctx.params)
        raw = {host: imagined(host, self.gpus_per_node) for host in selection.hosts}
        planned = plan(assign_slots(raw, selection.per_host, 1 if job is None else job.devices))
        words = given_words(ctx, (*HOST_NAMES, *WITHOUT_EFFECT), "pass it with --env")
        wrong = next((word for word in (*words, *self.options) if not is_utf8(word)), None)
        if wrong is not None:
            raise TfdistError(f"{wrong!r}: not valid UTF-8, as a batch script must be; use another name")
        script = self.script(
            str(ctx.params.get("name") or ctx.info_name),
            ("tfdist", str(ctx.info_name), "--transport", "srun", *words),
            requeue=ctx.params.get("requeue") is not None,
            signal_s=signal_time_s(policy.grace_s) if planned.checkpointing is not None else None,
        )
        for line in (*planned.notes, *(f"warning: {warning}" for warning in planned.warnings)):
            typer.echo(line, err=True)
        for name in (text.partition("=")[0] for text in secrets(ctx)):
            typer.echo(f"the value of {name} is not printed: set {name} before you submit the job", err=True)
        typer.echo(script, nl=False)


def quoted(value: str) -> str:
    """The value of an option on a line that starts with #SBATCH.

    sbatch drops quotes and what follows a `#`, as a shell does. But a backslash escapes within each kind of quotes
    (`get_argument` in https://github.com/SchedMD/slurm/blob/master/src/sbatch/opt.c).
    """
    return "'" + re.sub(r"[\\']", r"\\\g<0>", value) + "'" if _SPECIAL.search(value) else value


def signal_time_s(grace_s: float) -> int:
    """Seconds before the time limit at which a job is signalled, so that a save of `grace_s` seconds fits."""
    return max(SAVE_S, EARLY_S + math.ceil(grace_s))


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
    nodes: Annotated[int | None, option("--nodes", "Number of nodes.", SLURM)] = None,
    gpus_per_node: Annotated[int, option("--gpus-per-node", "GPUs of each node. Default: none.", SLURM)] = 0,
    partition: Annotated[str | None, option("--partition", "Partition. Default: that of the cluster.", SLURM)] = None,
    time: Annotated[str | None, option("--time", "Time limit, as sbatch takes it: 30, 2:00:00, 1-0.", SLURM)] = None,
    exclusive: Annotated[
        bool,
        option("--exclusive/--no-exclusive", "Whole nodes; else add --sbatch-option cpus-per-task=8.", SLURM),
    ] = True,
    sbatch_option: Annotated[
        list[str] | None,
        option("--sbatch-option", "Another option of sbatch, for example qos=high. Repeatable.", SLURM),
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
    ctx.obj = SlurmJob(nodes or 0, gpus_per_node, exclusive, (*named, *map(parse_option, sbatch_option or ())))
