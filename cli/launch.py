"""`tfdist launch`."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tfdist.cli.checkpoint_source import CheckpointSource
from tfdist.cli.config import JobFile, job_file, load_config
from tfdist.cli.detach import launch_detached
from tfdist.cli.host_options import host_options
from tfdist.cli.host_selection import HostSelection
from tfdist.cli.inherit_options import Inherit, InheritFrom, InheritTfConfig, NoWaitForPeers, inherit_options
from tfdist.cli.options import ENVIRONMENT, WHAT, Json, Port, option, refuse_tf_config, training_options
from tfdist.cli.output import never_block, wait_for_reader
from tfdist.cli.plan_launch import LaunchOptions
from tfdist.cli.recovery_options import RECOVERY, Recovery, recovery_options
from tfdist.cli.requeue import check_requeue, check_slurm
from tfdist.cli.resume import find_resumed
from tfdist.cli.run_argument import RUNS_DIR, RunsDir
from tfdist.cli.run_launch import RunOptions, run_launch
from tfdist.cli.termination import refusals_logged
from tfdist.cli.timeout_options import TIMEOUTS, timeout_options
from tfdist.launch.console.lines import LineOptions
from tfdist.launch.environment import forwarded_variables
from tfdist.launch.errors import TfdistError
from tfdist.launch.policy import LOG_LIMIT, Policy
from tfdist.launch.sizes import parse_size

HELP = """Run a training: the built-in MobileNetV2, or your program.

\b
Examples:
  tfdist launch --preset smoke
  tfdist launch --strategy multiworker --workers 2 --preset smoke
  tfdist launch --strategy mirrored --cross-device hierarchical-copy
  tfdist launch --strategy parameter-server --workers 2 --ps 1
  tfdist launch --strategy between-graph --sync --workers 2
  tfdist launch --preset smoke --dataset digits
  tfdist launch --strategy multiworker --workers 2 -- python train.py
  tfdist launch --hosts h1,h2 --preset smoke
  tfdist launch --hostfile hosts.txt --dry-run -- python train.py
  tfdist launch --detach -- python train.py
  tfdist launch --preset smoke --steps 500 --checkpoint-every 100 \\
    --max-restarts 3
  tfdist launch --resume last --steps 1000
  tfdist launch --max-restarts 3 -- python train.py
  tfdist launch --config job.toml --workers 4
  tfdist launch --inherit auto -- python train.py

Your own program finds TF_CONFIG in its environment; tfdist.strategies.current() builds the chosen strategy.

Other hosts are reached with ssh. They need Python and TensorFlow, but not tfdist; 'tfdist doctor' checks them.

Logs, events and records are kept in RUNS_DIR/TIME-NAME. The exit code is that of the task that failed first.
"""


def _use_config(ctx: typer.Context, value: Path | None) -> Path | None:
    """Make the values of a job file the defaults of the options."""
    if value is not None and not ctx.resilient_parsing:
        ctx.default_map = load_config(value, ctx.command.params)
    return value


Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND", help="Your own program, run as every task.", show_default=False),
]
Env = Annotated[
    list[str] | None,
    option(
        "--env",
        "Environment variable of every task: NAME=VALUE, NAME to copy it, or a pattern such as 'NCCL_*'. Repeatable.",
        ENVIRONMENT,
        short=("-x",),
    ),
]
EnvFile = Annotated[Path | None, option("--env-file", "File of NAME=VALUE lines, set for every task.", ENVIRONMENT)]
Timeout = Annotated[
    float | None,
    option("--timeout", "Stop the job after this many seconds, with exit code 124. Default: no limit.", TIMEOUTS),
]
Name = Annotated[str, option("--name", "Name of the run, used for its folder.")]
Config = Annotated[
    Path | None,
    option(
        "--config",
        'TOML file with values for these options: workers = 2, hosts = ["h1", "h2"], command = ["python", "train.py"]. '
        "The command line and the environment override it.",
        WHAT,
        first=_use_config,
    ),
]
SaveConfig = Annotated[
    Path | None,
    option("--save-config", "Write the options that were given to a TOML file for --config, without secrets.", WHAT),
]
Detach = Annotated[
    bool,
    option(
        "--detach",
        "Return when the tasks are started; see 'tfdist attach', 'tfdist logs' and 'tfdist stop'.",
        short=("-d",),
    ),
]
Requeue = Annotated[
    int | None,
    option(
        "--requeue",
        "In a Slurm batch job: after exit code 42, put the job back into the queue, at most this many times in all. "
        "Default: never.",
        RECOVERY,
    ),
]
DryRun = Annotated[bool, option("--dry-run", "Print each task's TF_CONFIG, environment and command; start nothing.")]
Output = Annotated[
    str,
    option("--output", "Print the lines of these tasks or roles, for example worker-0,ps; all or none. Logs keep all."),
]
Prefix = Annotated[bool, option("--prefix/--no-prefix", "Start each line of a task with its name.")]
Timestamps = Annotated[bool, option("--timestamps", "Start each line of a task with the time (UTC).")]
Quiet = Annotated[bool, option("--quiet", "Print only what the tasks write, and failures.", short=("-q",))]
LogLimit = Annotated[
    str | None, option("--log-limit", "Bytes of each log of a task, and of the events. Default: 10G.", hidden=True)
]
Verbose = Annotated[
    bool, option("--verbose", "Show TensorFlow's start-up messages; with --dry-run all variables.", short=("-v",))
]


@training_options()
@host_options()
@recovery_options()
@timeout_options()
def launch(
    ctx: typer.Context,
    choices: Mapping[str, Any],
    selection: HostSelection,
    *,
    recovery: Recovery,
    timeout: Timeout = None,
    policy: Policy,
    command: Command = None,
    config: Config = None,
    save_config: SaveConfig = None,
    port: Port = None,
    env: Env = None,
    env_file: EnvFile = None,
    inherit: InheritFrom = None,
    inherit_tf_config: InheritTfConfig = False,
    no_wait_for_peers: NoWaitForPeers = False,
    name: Name = "launch",
    runs_dir: RunsDir = RUNS_DIR,
    requeue: Requeue = None,
    detach: Detach = False,
    dry_run: DryRun = False,
    json: Json = False,
    output: Output = "all",
    prefix: Prefix = True,
    timestamps: Timestamps = False,
    log_limit: LogLimit = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Plan the job that the options describe, run it, and exit with its code. HELP is the text for users."""
    with refusals_logged():
        inherited = inherit_options(inherit, inherit_tf_config, no_wait_for_peers)
        _check(timeout, detach, dry_run, inherited)
        _check_requeue(requeue, recovery, command, inherited)
        source = _source(recovery, runs_dir, command, selection, inherited)
        variables = forwarded(env, env_file)
        job_options = LaunchOptions(choices, tuple(command or ()), port, variables, inherited, recovery, source)
        lines = LineOptions(verbose=verbose, prefix=prefix, timestamps=timestamps, quiet=quiet)
        run_options = RunOptions(name, runs_dir, dry_run, json, output, lines, _job_file(save_config, ctx), requeue)
        policy = replace(policy, timeout_s=timeout, log_limit=_log_limit(log_limit), **recovery.policy)
        code = _start(partial(run_launch, job_options, selection, policy, run_options), run_options, detach)
    raise typer.Exit(code)


def check_timeout(timeout: float | None) -> None:
    """Refuse a time limit that is not positive."""
    if timeout is not None and not timeout > 0:
        raise TfdistError(f"--timeout {timeout:g}: must be positive; omit it for no limit")


def _log_limit(text: str | None) -> int:
    if text is None:
        return LOG_LIMIT

    return parse_size(text, "--log-limit")


def _check(timeout: float | None, detach: bool, dry_run: bool, inherited: Inherit | None) -> None:
    check_timeout(timeout)
    if detach and dry_run:
        raise TfdistError("--detach and --dry-run: a dry run starts nothing; omit one of them")
    if inherited is None:
        refuse_tf_config()


def _check_requeue(
    requeue: int | None, recovery: Recovery, command: list[str] | None, inherited: Inherit | None
) -> None:
    if requeue is None:
        return
    if inherited is not None:
        flag = inherited.flag
        raise TfdistError(
            f"--requeue {requeue}: with {flag} each task has its own launcher, and the first one to end would requeue "
            f"the job while others still save; omit it, or use --transport srun instead of {flag}"
        )

    check_requeue(requeue, recovery, own=bool(command))
    check_slurm(requeue, os.environ)


def forwarded(env: list[str] | None, env_file: Path | None) -> Mapping[str, str]:
    """The variables of every task, from --env and --env-file.

    Raises:
        TfdistError: an entry is wrong.
    """
    return forwarded_variables(env or (), env_file, os.environ)


def _source(
    recovery: Recovery,
    runs_dir: Path,
    command: list[str] | None,
    selection: HostSelection,
    inherited: Inherit | None,
) -> CheckpointSource | None:
    remote = bool(selection.hosts) and not any(host.local for host in selection.hosts)
    return find_resumed(recovery, runs_dir, tuple(command or ()), remote=remote, shared=inherited is not None)


def _job_file(path: Path | None, ctx: typer.Context) -> JobFile | None:
    return None if path is None else job_file(path, ctx)


def _start(run: Callable[..., int], options: RunOptions, detach: bool) -> int:
    never_block()
    if detach:
        return launch_detached(run, json=options.json, quiet=options.lines.quiet)
    code = run()
    if options.dry_run:
        wait_for_reader()
    return code
