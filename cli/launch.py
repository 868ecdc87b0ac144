"""`tfdist launch`, and its job files: the same options in TOML."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from enum import Enum
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from tfdist.cli.copied import Copy, check_no_chdir, program_copy
from tfdist.cli.options import (
    Json,
    Port,
    gather,
    host_options,
    option,
    recovery_options,
    refuse_tf_config,
    timeout_options,
    training_options,
)
from tfdist.cli.run_argument import RUNS_DIR, RunsDir, argument, option_rows
from tfdist.cli.run_launch import RunOptions, run_launch
from tfdist.cli.scheduler import scheduler_of
from tfdist.cli.show.detached import launch_detached
from tfdist.cli.show.output import finish
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.inherit import Inherit
from tfdist.jobs.options import EXPECTED, HOSTS, KEYS, RECOVERY, TIMEOUTS, WHAT, Bytes, Seconds
from tfdist.jobs.plan import plan
from tfdist.jobs.recovery import Recovery
from tfdist.jobs.request import Request
from tfdist.jobs.requeue import check_batch_job, check_requeue
from tfdist.jobs.resume_source import find_resumed
from tfdist.launch.console.lines import LineOptions
from tfdist.launch.environment import forwarded_variables
from tfdist.launch.errors import TfdistError
from tfdist.launch.inherit.table import SourceName
from tfdist.launch.json_files import read_toml
from tfdist.launch.policy import LOG_LIMIT, Policy
from tfdist.launch.schedulers.table import NAMES
from tfdist.launch.supervision.metrics import metrics_options
from tfdist.launch.supervision.termination_log import refusals_logged
from tfdist.strategies.options import option_words

PYTHON_CALL = "tfdist.run"
"""Key of a context's `meta`: what `tfdist.run` does with the job, in place of what the command does."""
Act = Callable[[Request, HostSelection, RunOptions], None]
NOT_KEPT = ("config", "dry_run", "detach", "json", "set")
"""Options that are about one call, not about the job."""
NO_CHOICES = ("log_limit", "copy_limit")
"""Options of a training that do not change how it trains."""


def load_config(path: Path, params: Sequence[Any]) -> dict[str, Any]:
    """The values of a job file, by the names of the command's parameters.

    Raises:
        TfdistError: the file cannot be read, or a key or value is wrong.
    """
    try:
        values = checked_values(_read(path), params)
    except TypeError as error:
        raise TfdistError(f"{path}: {error}") from None
    settings = [option_words(key, value)[1] for key, value in values.items() if key in KEYS]
    return {**{name: value for name, value in values.items() if name not in KEYS}, "set": settings}


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return read_toml(path)
    except ValueError as error:
        raise TfdistError(f"--config {path}: not TOML ({error}); correct it") from None
    except OSError as error:
        raise TfdistError(f"--config {path}: {error.strerror}; use a readable TOML file") from None


def checked_values(table: Mapping[str, Any], params: Sequence[Any]) -> dict[str, Any]:
    """The values of a table of options, by the names of the command's parameters and of the keys of --set.

    Raises:
        TypeError: a key or value is wrong; the message has both.
    """
    kinds = {param.name: param.type_descriptor.annotation for param in params if param.name not in NOT_KEPT}
    kinds |= {name: option.kind for name, option in KEYS.items()}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in kinds:
            raise TypeError(_unknown(key, name, kinds))
        if name in values:
            raise TypeError(f"{key}: given twice; keep one of {name} and {name.replace('_', '-')}")
        if name == "checkpoint_every" and type(value) is int:  # a number of steps, or a duration
            value = str(value)
        try:
            values[name] = _env(value) if name == "env" else _of_kind(kinds[name], value)
        except TypeError as error:
            raise TypeError(f"{key} = {dumps(value, ensure_ascii=False, default=str)}: {error}") from None
    return values


def _unknown(key: str, name: str, kinds: Mapping[str, Any]) -> str:
    if name in NOT_KEPT:
        return f"{key}: not for a job file; use --{name.replace('_', '-')} on the command line"
    if name.removeprefix("no_") in kinds:
        return f"{key}: no such key; use {name.removeprefix('no_')} = false"
    nearest = get_close_matches(name.casefold(), kinds, n=1)
    fix = f"did you mean {nearest[0]}?" if nearest else "the keys are the options of 'tfdist launch --help'"
    return f"{key}: no such key; {fix}"


def _of_kind(kind: Any, value: Any) -> Any:
    """The value as Typer takes it from a default map; raises TypeError with what it must be."""
    if kind == list[str]:
        if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise TypeError('must be a list of strings, such as ["a", "b"]')
        return value
    if issubclass(kind, Enum | Seconds | Bytes) and type(value) in (int, float):  # keras = 2, timeout = 600
        return str(value)
    kind = kind if kind in EXPECTED else str
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise TypeError(EXPECTED[kind])
    return value


def _env(value: Any) -> list[str]:
    """The variables of a table, or of a list as of --env."""
    if not isinstance(value, dict):
        return list(_of_kind(list[str], value))
    for name, text in value.items():
        if type(text) not in (str, int, float):
            raise TypeError(f"{name} must be a string or a number")
    return [f"{name}={text}" for name, text in value.items()]


def _use_config(ctx: typer.Context, value: Path | None) -> Path | None:
    """Make the values of a job file the defaults of the options."""
    if value is not None and not ctx.resilient_parsing:
        ctx.default_map = load_config(value, ctx.command.params)
    return value


OPTIONS: dict[str, Any] = option_rows(
    WHAT,
    config=(Path, 'TOML file of options and of --set: workers = 2, command = ["train.py"].', {"first": _use_config}),
    env=(
        list[str],
        "Variable of every task: NAME=VALUE, NAME to copy it, or a pattern as 'NCCL_*'. Repeatable.",
        {"short": ("-x",)},
    ),
    env_file=(Path, "File of NAME=VALUE lines, set for every task."),
    inherit=(SourceName, f"Run only this task of the cluster in the environment: {', '.join(SourceName)}."),
    no_wait_for_peers=(bool, "With --inherit: start without the other tasks."),
    trace=(bool, "Trace the end of the warm-up for TensorBoard."),
)
OPTIONS |= option_rows(TIMEOUTS, timeout=(Seconds, "Stop the job after this time, with exit code 124."))
OPTIONS |= option_rows(
    RECOVERY, requeue=(int, f"In a {NAMES} batch job: requeue it after exit code 42, at most N times.")
)
OPTIONS |= option_rows(HOSTS, burn=(Seconds, "First let the hosts work for this time; stop if one is slow."))


@training_options()
@host_options()
@recovery_options()
@timeout_options()
@gather("given", OPTIONS)
def launch(
    ctx: typer.Context,
    choices: Mapping[str, Any],
    selection: HostSelection,
    *,
    recovery: Recovery,
    given: Mapping[str, Any],
    policy: Policy,
    command: Annotated[list[str] | None, argument("-- COMMAND", "Your own program, run as every task.")] = None,
    copy: Copy = None,
    port: Port = None,
    name: Annotated[str, option("--name", "Name of the run, used for its folder.")] = "launch",
    runs_dir: RunsDir = RUNS_DIR,
    metrics: Annotated[str | None, option("--metrics", "Serve Prometheus figures at [HOST]:PORT.")] = None,
    metrics_file: Annotated[Path | None, option("--metrics-file", "Write the figures to this file every 5 s.")] = None,
    detach: Annotated[bool, option("--detach", "Return when the tasks run; see 'tfdist logs'.", short=("-d",))] = False,
    dry_run: Annotated[
        bool, option("--dry-run", "Print each task's TF_CONFIG, variables and command; start nothing.")
    ] = False,
    json: Json = False,
    output: Annotated[str, option("--output", "Lines to print: tasks or roles, as worker-0,ps; all; none.")] = "all",
    prefix: Annotated[bool, option("--prefix/--no-prefix", "Start each line of a task with its name.")] = True,
    timestamps: Annotated[bool, option("--timestamps", "Start each line of a task with the time (UTC).")] = False,
    quiet: Annotated[bool, option("--quiet", "Print only what the tasks write, and failures.", short=("-q",))] = False,
    verbose: Annotated[
        bool,
        option("--verbose", "Show TensorFlow's start-up messages; with --dry-run all variables.", short=("-v",)),
    ] = False,
) -> None:
    """Run a training: the built-in MobileNetV2, or your program.

    \b
    Examples:
      tfdist launch --strategy multiworker --workers 2 -- python train.py
      tfdist launch --hosts h1,h2 --copy -- python train.py
      tfdist launch --strategy parameter-server --workers 2 --ps 1
      tfdist launch --strategy mirrored --preset smoke --dry-run
      tfdist launch --preset smoke --dataset digits --set seed=1
      tfdist launch --steps 500 --checkpoint-every 100 --max-restarts 3
      tfdist launch --resume last --steps 1000
      tfdist launch --config job.toml --workers 4

    Your own program finds TF_CONFIG; tfdist.strategies.current() builds the strategy.

    Other hosts need Python, TensorFlow and tf_keras, but not tfdist; 'tfdist doctor' checks them.

    Logs and records are kept in RUNS_DIR/TIME-NAME. The exit code is that of the first failed task.
    """
    with refusals_logged():
        if detach and dry_run:
            raise TfdistError("--detach and --dry-run: a dry run starts nothing; omit one of them")
        inherit = _inherit(given["inherit"], alone=bool(given["no_wait_for_peers"]))
        check_requeue(given["requeue"], recovery, inherit, own=bool(command))
        options = RunOptions(
            name=name,
            runs_dir=runs_dir,
            json=json,
            lines=LineOptions(verbose=verbose, prefix=prefix, timestamps=timestamps, quiet=quiet),
            metrics=metrics_options(metrics, metrics_file),
            policy=replace(
                policy, timeout_s=given["timeout"], log_limit=choices.get("log_limit", LOG_LIMIT), **recovery.policy
            ),
            burn_s=given["burn"],
            requeue=given["requeue"],
        )
        request = Request(
            choices={name: value for name, value in choices.items() if name not in NO_CHOICES},
            command=tuple(command or ()),
            port=port,
            env=forwarded_variables(given["env"] or (), given["env_file"], os.environ),
            recovery=recovery,
            output=output,
            trace=bool(given["trace"]),
            run_dir=options.run_dir,
            dry_run=dry_run,
        )
        if (scheduler := scheduler_of(ctx)) is not None:
            scheduler.submit(ctx, partial(plan, request), options.policy, request)
            return
        check_batch_job(given["requeue"], os.environ)
        if inherit is not None:
            request = replace(request, inherit=inherit.read(os.environ, port, selection.hosts))
        remote = bool(selection.hosts) and not any(host.local for host in selection.hosts)
        source = find_resumed(recovery, runs_dir, request.command, remote=remote, shared=inherit is not None)
        limit = choices.get("copy_limit")
        copied = program_copy(copy, limit, source, own=bool(command), dry_run=dry_run, quiet=quiet)
        check_no_chdir(selection.hosts, copied)
        if copied is not None and not quiet and (verbose or dry_run):
            typer.echo(str(copied), file=options.out)
        request = replace(request, source=source, copy=copied)
        act: Act | None = ctx.meta.get(PYTHON_CALL)
        if act is not None:
            act(request, selection, options)
            return
        run = partial(run_launch, request, selection, options)
        if detach:
            run = partial(launch_detached, run, json=json, quiet=quiet)
        finish(run, until_read=dry_run or json)


def _inherit(source: SourceName | None, *, alone: bool) -> Inherit | None:
    if source is not None:
        return Inherit(source, waits=not alone)
    if alone:
        raise TfdistError("--no-wait-for-peers: has no effect without --inherit; omit it")
    refuse_tf_config()
    return None
