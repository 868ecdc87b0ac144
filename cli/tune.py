"""`tfdist tune`: its options, the search that they describe, and what it has found."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, TextIO

import typer

from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import progress_on
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import Session, prepare
from tfdist.bench.tune import STAGE_ROUNDS, Tuning, launch_words, search_arms, search_s, stages
from tfdist.bench.tune import tune as search
from tfdist.cli import bench
from tfdist.cli.copied import Copy, check_no_chdir, program_copy
from tfdist.cli.options import Json, gather, host_options, option, refuse_tf_config, timeout_options
from tfdist.cli.run_argument import option_rows
from tfdist.cli.scheduler import BenchPlan, scheduler_of
from tfdist.cli.show.bench import refusals
from tfdist.cli.show.output import finish
from tfdist.cli.show.rows import echo_wrapped
from tfdist.cli.show.steps import connected
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.options import TIMING, WHAT
from tfdist.launch.json_files import dumps
from tfdist.launch.machine import Machines
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_command
from tfdist.launch.text import counted, duration
from tfdist.strategies.options import StrategyName


def run_tune(
    options: BenchOptions, selection: HostSelection, policy: Policy, *, dry_run: bool, json: bool, quiet: bool
) -> int:
    """Check the search, run it and print the best options; returns the exit code.

    Raises:
        TfdistError: an option or the suite is wrong, or the default arm failed.
    """
    stream = sys.stderr if json else sys.stdout
    with connected(selection, policy, quiet=quiet) as fleet:
        session = prepare(options, selection.raw_machines(fleet))
        default, *candidates = search_arms(session)
    if not quiet or dry_run:
        _announce(session, default, candidates, stream)
    if dry_run:
        if json:
            arms = {"default": default, "candidates": candidates, "stages": list(stages(len(candidates)))}
            summary = {"estimate_s": search_s(session), "folder": str(session.root)}
            typer.echo(dumps({"format": 1, **arms, "refused": session.arms.refused, **summary}))
        return 0
    with progress_on(stream, quiet, session.unit) as progress:
        tuning = search(session, RunnerHooks(progress, policy=policy))
    if tuning.interrupted is not None:
        bench.report_on(session, stream, quiet)
    command = _command(tuning, session, selection.options) if tuning.gain else ""
    if json:
        strategy = session.bench.suite.arms[0].choices["strategy"]
        found = {"strategy": strategy, **asdict(tuning), "gain": tuning.gain, "command": command}
        typer.echo(dumps({"format": 1, **found, "folder": str(session.root)}))
    else:
        typer.echo("\n".join(_texts(tuning, session, command)))
    return 0 if tuning.interrupted is None else 128 + tuning.interrupted


def _announce(session: Session, default: str, candidates: Sequence[str], stream: TextIO) -> None:
    suite = session.bench.suite
    lines = [f"suite {suite.name}: {counted(len(candidates), 'candidate')} and the default, {default}"]
    lines += [f"candidates: {', '.join(candidates)}"]
    *earlier, last = (f"{counted(number, 'candidate')}" for number in stages(len(candidates)))
    lines += [f"{number}: {counted(STAGE_ROUNDS, 'round')} of {suite.turn_s:g} s" for number in earlier]
    lines += [f"{last}: {counted(suite.rounds, 'round')} of {suite.turn_s:g} s"]
    lines += [f"about {duration(search_s(session))}; results in {session.root}"]
    lines += [*session.notes, *refusals(session.arms.refused)]
    lines += [f"warning: {warning}" for warning in session.arms.warnings]
    echo_wrapped(lines, stream)


def _texts(tuning: Tuning, session: Session, command: str) -> list[str]:
    folder = f"all turns are in {session.root}: see 'tfdist report {shlex.quote(str(session.root))}'"
    if tuning.interrupted is not None:
        return ["interrupted before the final comparison: no options are recommended", folder]
    ratio = f"; {tuning.best}: {tuning.comparison}" if tuning.comparison else ""
    if not tuning.best:
        return ["nothing to compare: no candidate has a figure", folder]
    if not tuning.gain:
        return [f"no measurable gain over the defaults ({tuning.default}){ratio}", folder]
    return [f"{tuning.best} is faster than {tuning.default}{ratio}:", f"  {command}", folder]


def _command(tuning: Tuning, session: Session, hosts: Sequence[str]) -> str:
    suite = session.bench.suite
    best = next(arm for arm in suite.arms if arm.name == tuning.best)
    return redact_command(launch_words(best, suite.preset, session.arms.specs[best.name], hosts))


OPTIONS: dict[str, Any] = option_rows(
    TIMING, rounds=(int, "Turns of the best and of the default in the last stage. Default: the suite's.")
)
OPTIONS |= {name: bench.OPTIONS[name] for name in ("turn", "seed", "out")}


@host_options(bench.NOT_FOR_BENCHES)
@timeout_options()
@gather("given", OPTIONS)
def tune(
    ctx: typer.Context,
    strategy: Annotated[StrategyName, option("--strategy", "The strategy whose options are searched.", WHAT)],
    command: bench.Command = None,
    copy: Copy = None,
    suite: Annotated[
        str,
        option(
            "--suite",
            "A suite whose arms of this strategy are the candidates; the first is the default of the others.",
            WHAT,
        ),
    ] = "knobs",
    *,
    given: Mapping[str, Any],
    dry_run: Annotated[
        bool, option("--dry-run", "Show the candidates and about how long it takes; start nothing.")
    ] = False,
    json: Json = False,
    quiet: bench.Quiet = False,
    selection: HostSelection,
    policy: Policy,
) -> None:
    """Find the fastest options of a strategy. Prints them as a 'tfdist launch' command line.

    \b
    Examples:
      tfdist tune --strategy multiworker
      tfdist tune --strategy mirrored --turn 5s
      tfdist tune --strategy multiworker -- python train.py
      tfdist tune --strategy mirrored --suite candidates.toml

    Candidates have 3 turns each in stages that keep the faster half. The last one is then compared with the defaults
    in new turns; only a measurable gain is printed. All turns are kept in a folder for 'tfdist report'.

    The exit code is 0, with or without a gain, or 130 after Ctrl-C.
    """
    refuse_tf_config()
    bench.refuse_suite(command)
    options = replace(bench.bench_options({**given, "suite": suite}, command), strategy=strategy)
    if (scheduler := scheduler_of(ctx)) is not None:
        scheduler.submit(ctx, lambda machines: _plan(options, machines), policy)
        return
    options = replace(options, copy=program_copy(copy, own=bool(command), quiet=quiet))
    check_no_chdir(selection.hosts, options.copy)
    run = partial(run_tune, options, selection, policy, dry_run=dry_run, json=json, quiet=quiet)
    finish(run, until_read=dry_run or json)


def _plan(options: BenchOptions, machines: Machines) -> BenchPlan:
    session = prepare(options, machines)
    search_arms(session)  # raises if there is nothing to search
    return bench.plan_of(session)
