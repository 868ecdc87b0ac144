"""`tfdist launch`."""

import json as _json
import os
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from tfdist.bench.job import record_of
from tfdist.bench.record import Record
from tfdist.cli.options import WHERE, Port, option, refuse_tf_config, training_options
from tfdist.cli.outcome import outcome_json, show_failure, show_success
from tfdist.cli.request import Asked, Request, plan_request
from tfdist.cli.where import Where, where_options
from tfdist.launch.console import Lines, LiveTable, Quiet
from tfdist.launch.diagnose import Outcome, Status
from tfdist.launch.environment import forwarded
from tfdist.launch.errors import TfdistError
from tfdist.launch.fleet import Fleet
from tfdist.launch.policy import Policy
from tfdist.launch.preflight import preflight
from tfdist.launch.run import describe_plan, dry_ports
from tfdist.launch.run import launch as run_job
from tfdist.launch.rundir import RunDir, create_run_dir, save_json

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
RunsDir = Annotated[Path, option("--runs-dir", "Where run folders are made.")]
DryRun = Annotated[bool, option("--dry-run", "Show every task's TF_CONFIG, environment and command; start nothing.")]
Json = Annotated[bool, option("--json", "The outcome as JSON in stdout's last line; all else goes to stderr.")]
Silent = Annotated[bool, option("--quiet", "Print nothing but failures.", short=("-q",))]
Verbose = Annotated[bool, option("--verbose", "Show TensorFlow's start-up messages too.", short=("-v",))]


@training_options()
@where_options()
def launch(
    choices: Mapping[str, Any],
    where: Where,
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
    if timeout is not None and not timeout > 0:
        raise TfdistError(f"--timeout {timeout:g}: use more than 0 seconds, or leave it away")
    if inherit_tf_config is False:
        refuse_tf_config()
    asked = Asked(choices, tuple(command or ()), port, forwarded(env or (), env_file, os.environ))
    policy = Policy(timeout_s=timeout)
    where.try_out(lambda machines: plan_request(asked, machines, inherit_tf_config), asked.devices)
    with where.connected(policy) as fleet:
        request = plan_request(asked, where.machines(fleet, asked.devices), inherit_tf_config)
        out = sys.stderr if json else sys.stdout
        if not quiet:
            announce(request, out)
        if dry_run:
            show_plan(request, fleet, json)
            return
        run_dir = create_run_dir(runs_dir, name)
        console = console_for(request, out, quiet=quiet, verbose=verbose)
        outcome, record = run_and_keep(request, run_dir, policy, console, fleet)
    conclude(outcome, record, run_dir, out, json=json, quiet=quiet)
    raise typer.Exit(record.exit_code if record is not None else outcome.exit_code)


def announce(request: Request, out: TextIO) -> None:
    """What was decided for the user, and what may surprise them."""
    for line in (*request.notes, *(f"warning: {warning}" for warning in request.warnings)):
        typer.echo(line, file=out)


def show_plan(request: Request, fleet: Fleet | None, as_json: bool) -> None:
    """Every task, as it would be started; on other hosts after their preflight."""
    if fleet is None:
        job = dry_ports(request.job)
    else:
        job, notes = preflight(request.job, fleet, needs_tensorflow=not request.argv)
        for note in notes:
            typer.echo(f"warning: {note.host}: {note.text}", err=True)
    plans = [describe_plan(job, plan) for plan in job.plans]
    if as_json:
        typer.echo(_json.dumps(plans))
        return
    for plan in plans:
        cores = ", ".join(map(str, plan["cores"])) or "any"
        typer.echo(f"\n{plan['task']} on {plan['host']}, cores: {cores}, in {plan['cwd']}")
        for key, value in plan["env"].items():
            typer.echo(f"  {key}={value}")
        typer.echo(f"  {plan['command']}")


def console_for(request: Request, out: TextIO, *, quiet: bool, verbose: bool) -> Lines:
    """A live table for the built-in training on a terminal, else prefixed lines."""
    if quiet:
        return Quiet(out, sys.stderr)
    if out.isatty() and not request.argv:
        return LiveTable(request.job, out, verbose)
    return Lines(out, sys.stderr, verbose)


def run_and_keep(
    request: Request, run_dir: RunDir, policy: Policy, console: Lines, fleet: Fleet | None
) -> tuple[Outcome, Record | None]:
    """Run the job and write its spec and, for the built-in training, its record."""
    save_json(run_dir.spec, {"command": list(request.argv), **request.spec.to_json()})
    started = datetime.now(timezone.utc)
    with console:
        outcome = run_job(request.job, run_dir, policy, console.hear, fleet=fleet, needs_tensorflow=not request.argv)
    if request.argv:
        return outcome, None
    record = record_of(
        outcome, request.spec, request.job.measuring, arm=str(request.spec.strategy), round=0, started=started
    )
    save_json(run_dir.records / f"{record.arm}.json", record.to_json())
    return outcome, record


def conclude(outcome: Outcome, record: Record | None, run_dir: RunDir, out: TextIO, *, json: bool, quiet: bool) -> None:
    """The last thing printed."""
    if outcome.status is not Status.OK:
        show_failure(outcome, run_dir, sys.stderr)
    elif record is not None and record.status != Status.OK:
        typer.echo(f"tfdist: {record.reason}; logs: {outcome.run_dir}", err=True)
    elif not quiet:
        show_success(outcome, record, out)
    if json:
        typer.echo(_json.dumps(outcome_json(outcome, record)))
