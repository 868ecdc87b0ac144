"""`tfdist launch`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfdist.cli.host_options import host_options
from tfdist.cli.options import WHERE, Port, option, refuse_tf_config, training_options
from tfdist.launch.errors import TfdistError

if TYPE_CHECKING:
    from tfdist.cli.host_selection import HostSelection

Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND", help="Your own program, run as every task.", show_default=False),
]


Inherit = Annotated[
    bool, option("--inherit-tf-config", "Run only the task that TF_CONFIG in the environment describes.", WHERE)
]
Env = Annotated[
    list[str] | None,
    option(
        "--env",
        "Set for every task: NAME=VALUE, NAME as it is here, or a glob as 'NCCL_*'; may be repeated.",
        WHERE,
        ("-x",),
    ),
]
EnvFile = Annotated[Path | None, option("--env-file", "A file of NAME=VALUE lines, set for every task.", WHERE)]
Timeout = Annotated[float | None, option("--timeout", "Stop the job after so many seconds, with exit code 124.")]
Name = Annotated[str, option("--name", "Part of the run folder's name.")]
RunsDir = Annotated[Path, option("--runs-dir", "HostSelection run folders are made.")]
DryRun = Annotated[bool, option("--dry-run", "Show every task's TF_CONFIG, environment and command; start nothing.")]
Json = Annotated[bool, option("--json", "The outcome as JSON in stdout's last line; all else goes to stderr.")]
Silent = Annotated[bool, option("--quiet", "Print nothing but failures.", short=("-q",))]
Verbose = Annotated[bool, option("--verbose", "Show TensorFlow's start-up messages too.", short=("-v",))]


@training_options()
@host_options()
def launch(
    choices: Mapping[str, Any],
    selection: "HostSelection",
    command: Command = None,
    port: Port = None,
    env: Env = None,
    env_file: EnvFile = None,
    inherit_tf_config: Inherit = False,
    timeout: Timeout = None,
    name: Name = "launch",
    runs_dir: RunsDir = Path("runs"),
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Silent = False,
    verbose: Verbose = False,
) -> None:
    """Run a distributed training on this machine or on many: the built-in MobileNetV2, or your own program.

    \b
    Examples:
      tfdist launch --preset smoke
      tfdist launch --strategy multiworker --workers 2 --preset smoke
      tfdist launch --strategy mirrored --cross-device hierarchical-copy
      tfdist launch --strategy parameter-server --workers 2 --ps 1
      tfdist launch --preset smoke --dataset digits
      tfdist launch --strategy multiworker --workers 2 -- python train.py
      tfdist launch --hosts h1,h2 --preset smoke
      tfdist launch --hostfile hosts.txt --strategy parameter-server -- python train.py

    Other hosts are reached with ssh; they need Python and TensorFlow, nothing of tfdist. 'tfdist doctor' looks first.

    Your own program finds TF_CONFIG in its environment; tfdist.strategies.current() builds the chosen strategy.

    Logs, events and records are kept in RUNS_DIR/TIME-NAME. The exit code is that of the task that failed first.
    """
    from tfdist.cli.plan_launch import LaunchOptions
    from tfdist.cli.run_launch import RunOptions, carry_out
    from tfdist.launch.environment import forwarded_variables
    from tfdist.launch.policy import Policy

    if timeout is not None and not timeout > 0:
        raise TfdistError(f"--timeout {timeout:g}: use more than 0 seconds, or leave it away")
    if not inherit_tf_config:
        refuse_tf_config()
    forward = forwarded_variables(env or (), env_file, os.environ)
    asked = LaunchOptions(choices, tuple(command or ()), port, forward, inherit_tf_config)
    options = RunOptions(name, runs_dir, dry_run=dry_run, json=json, quiet=quiet, verbose=verbose)
    raise typer.Exit(carry_out(asked, selection, Policy(timeout_s=timeout), options))
