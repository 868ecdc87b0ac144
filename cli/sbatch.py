"""`tfdist sbatch`."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tfdist.cli.given_options import given_words
from tfdist.cli.host_options import node_options
from tfdist.cli.host_selection import imagined
from tfdist.cli.launch import (
    Command,
    Env,
    EnvFile,
    Name,
    Output,
    Prefix,
    Quiet,
    Requeue,
    Timeout,
    Timestamps,
    Verbose,
    check_timeout,
    forwarded,
)
from tfdist.cli.options import Port, option, refuse_tf_config, training_options
from tfdist.cli.output_tasks import output_tasks
from tfdist.cli.plan_launch import LaunchOptions, plan_request
from tfdist.cli.recovery_options import Recovery, recovery_options
from tfdist.cli.requeue import check_requeue
from tfdist.cli.run_argument import RUNS_DIR, RunsDir
from tfdist.cli.timeout_options import timeout_options
from tfdist.launch.batch_script import BatchScript, parse_option, signal_time_s
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import assign_slots
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_command, redact_value
from tfdist.launch.text import is_utf8


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


@dataclass(frozen=True)
class LaunchWords:
    """Options and the user's command."""

    words: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    """Variables of --env whose values are left out: launch copies them from its environment."""

    @property
    def notes(self) -> list[str]:
        """What to tell the user."""
        return [f"the value of {name} is not printed: set {name} before you submit the job" for name in self.secrets]


def launch_words(ctx: typer.Context, without: Collection[str]) -> LaunchWords:
    """The words of the options that were given, and of the command.

    Args:
        ctx: of a command that has launch's options.
        without: the names of its other parameters.

    Raises:
        TfdistError: an option other than --env holds a secret.
    """
    names = {str(param.name) for param in ctx.command.params} - {*without, "env", "command"}
    pairs = [text.partition("=") for text in ctx.params.get("env") or ()]
    secrets = tuple(name for name, _, value in pairs if redact_value(name, value) != value)
    variables = [name if name in secrets else f"{name}{equals}{value}" for name, equals, value in pairs]
    command = list(ctx.params.get("command") or ())
    words = (
        *given_words(ctx, names),
        *(word for text in variables for word in ("--env", text)),
        *(["--", *command] if command else []),
    )
    if redact_command(words) != shlex.join(words):
        raise TfdistError(f"{redact_command(words)}: holds a secret, which the script would show; pass it with --env")
    return LaunchWords(words, secrets)


SLURM = "Slurm"
HELP = """Print a batch script for Slurm.

The job runs 'tfdist launch' with these options, which are checked now. Nothing is started.

\b
Examples:
  tfdist sbatch --nodes 2 --strategy multiworker > job.sh && sbatch job.sh
  tfdist sbatch --nodes 2 --gpus-per-node 4 --preset reference | sbatch
  tfdist sbatch --nodes 2 --requeue 10 --checkpoint-every 10m \\
    --checkpoint-dir ckpt --resume auto | sbatch
  tfdist sbatch --nodes 4 --sbatch-option time=1-0 \\
    --sbatch-option partition=gpu -- python train.py

The launcher runs on the first node, and reaches the others with srun.

A job that saves checkpoints gets SIGUSR2 three minutes before its time limit, and ends with exit code 42.

With --requeue it then continues in a new job of the same number.
"""

Nodes = Annotated[int, option("--nodes", "Number of nodes.", SLURM)]
GpusPerNode = Annotated[int, option("--gpus-per-node", "GPUs of each node. Default: none.", SLURM)]
Exclusive = Annotated[
    bool,
    option(
        "--exclusive/--no-exclusive",
        "Whole nodes. Without it, request cores with --sbatch-option cpus-per-task=8.",
        SLURM,
    ),
]
SbatchOption = Annotated[
    list[str] | None,
    option(
        "--sbatch-option",
        "Another option of sbatch, for example time=2:00:00 or partition=gpu. Repeatable.",
        SLURM,
    ),
]


@training_options()
@node_options()
@recovery_options()
@timeout_options()
def sbatch(
    ctx: typer.Context,
    choices: Mapping[str, Any],
    *,
    nodes: Nodes,
    exclusive: Exclusive = True,
    gpus_per_node: GpusPerNode = 0,
    requeue: Requeue = None,
    sbatch_option: SbatchOption = None,
    on_nodes: Mapping[str, Any],
    recovery: Recovery,
    timeout: Timeout = None,
    policy: Policy,
    command: Command = None,
    port: Port = None,
    env: Env = None,
    env_file: EnvFile = None,
    name: Name = "launch",
    runs_dir: RunsDir = RUNS_DIR,
    output: Output = "all",
    prefix: Prefix = True,
    timestamps: Timestamps = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check that the job can be planned for such nodes, and print its script. HELP is the text for users."""
    check_timeout(timeout)
    refuse_tf_config()
    _check_size(nodes, gpus_per_node)
    job = LaunchOptions(choices, tuple(command or ()), port, forwarded(env, env_file), recovery=recovery)
    words = launch_words(ctx, ("nodes", "exclusive", "gpus_per_node", "sbatch_option"))
    wrong = next((word for word in (*words.words, *(sbatch_option or ())) if not is_utf8(word)), None)
    if wrong is not None:
        raise TfdistError(f"{wrong!r}: not valid UTF-8, as a batch script must be; use another name")
    options = BatchOptions(name, nodes, exclusive, gpus_per_node, requeue, tuple(sbatch_option or ()), output)
    planned = plan_batch(options, job, on_nodes.get("workers_per_host"), policy, words.words)
    for line in (*planned.notes, *words.notes):
        typer.echo(line, err=True)
    typer.echo(str(planned.script), nl=False)


def _check_size(nodes: int, gpus_per_node: int) -> None:
    if nodes < 1:
        raise TfdistError(f"--nodes {nodes}: must be at least 1")
    if gpus_per_node < 0:
        raise TfdistError(f"--gpus-per-node {gpus_per_node}: must not be negative; omit it for none")
