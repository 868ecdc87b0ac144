"""`tfdist sbatch`."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tfdist.cli.host_options import node_options
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
from tfdist.cli.launch_words import launch_words
from tfdist.cli.options import Port, option, refuse_tf_config, training_options
from tfdist.cli.plan_batch import BatchOptions, plan_batch
from tfdist.cli.plan_launch import LaunchOptions
from tfdist.cli.recovery_options import Recovery, recovery_options
from tfdist.cli.run_argument import RUNS_DIR, RunsDir
from tfdist.cli.timeout_options import timeout_options
from tfdist.launch.errors import TfdistError
from tfdist.launch.policy import Policy
from tfdist.launch.text import is_utf8

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
