"""`tfdist bench`."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from tfdist.bench.compare.gate import gate_sentence, is_too_slow, may_be_too_slow, parse_share
from tfdist.bench.export import ExportFormat, exported, figures_of, ratios_of
from tfdist.bench.folder import BenchPaths
from tfdist.bench.options import SWEPT, BenchOptions, read_sweep
from tfdist.bench.progress import progress_on
from tfdist.bench.reading import read_folder
from tfdist.bench.run_session import run_session
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import Session, prepare
from tfdist.bench.statistics import Comparison, interval_of
from tfdist.bench.suites.suite import built_in_suites
from tfdist.cli.copied import Copy, check_no_chdir, program_copy
from tfdist.cli.options import Json, gather, host_options, option, refuse_tf_config, timeout_options
from tfdist.cli.result_folders import Export, export_form, list_skipped
from tfdist.cli.run_argument import argument, option_rows
from tfdist.cli.scheduler import BenchPlan, scheduler_of
from tfdist.cli.show.bench import announce, limits, refusals, show_plan
from tfdist.cli.show.outcome import traces_line
from tfdist.cli.show.output import finish
from tfdist.cli.show.rows import echo_wrapped
from tfdist.cli.show.steps import connected
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.options import OUTPUT, TIMING, WHAT, Seconds
from tfdist.jobs.recovery import timeout_words
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.doctor.preflight import Links, measure_neighbours
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_command
from tfdist.launch.text import counted
from tfdist.launch.this_command import this_command

if TYPE_CHECKING:
    from tfdist.bench.report.build import Report


def run_bench(
    options: BenchOptions,
    selection: HostSelection,
    policy: Policy,
    *,
    dry_run: bool,
    export: ExportFormat | None,
    quiet: bool,
) -> int:
    """Check the bench, run it and report on it; returns the exit code.

    Raises:
        TfdistError: an option or the suite is wrong.
    """
    stream = sys.stderr if export else sys.stdout
    with connected(selection, policy, quiet=quiet) as fleet:
        session = prepare(options, selection.raw_machines(fleet))
        if dry_run:
            show_plan(session, export is ExportFormat.JSON)
            return 0
        if not quiet:
            announce(session, stream)
        links = _used_links(session, fleet)
        if not quiet:
            measured = [f"{one.name} -> {other.name}: {link}" for (one, other), link in links.items()]
            echo_wrapped([*measured, *limits(session, links)], stream)
    with progress_on(stream, quiet, session.unit) as progress:
        code = run_session(session, RunnerHooks(progress, links=links, policy=policy))
    if not quiet and (traces := session.root / "traces").is_dir():
        typer.echo(traces_line(traces), file=stream)
    report = report_on(session, stream, quiet)
    _show_rest(session, selection, policy, quiet, interrupted=code > 128)
    if report and not (export and quiet):
        typer.echo(f"report: {BenchPaths(session.root).page}", file=stream)
    able = [row for row in report.rows if row.arm not in session.arms.refused] if report else []
    versions = [(row.arm, row.over_base) for row in able if row.has_base]
    code, rows = _judge(versions, session.bench.fail_slower, code, stream, quiet)
    if export is ExportFormat.JSON:
        content = report.to_json() if report else {}
        if report and rows:
            content["versions"] = rows
        typer.echo(dumps({"format": 2, "exit_code": code, "folder": str(session.root), **content}))
    elif export:
        figures = figures_of(report) if report else ()
        typer.echo(dumps(exported((*figures, *ratios_of(versions)), export)))
    return code


def _used_links(session: Session, fleet: Fleet | None) -> Links:
    """The links between neighbouring hosts that some arm uses, measured.

    Raises:
        TfdistError: a host cannot reach the next one.
    """
    most = max((len(machines) for machines in session.arms.machines.values()), default=1)
    return {} if fleet is None or most < 2 else measure_neighbours(fleet, list(fleet.hellos)[:most])


def _judge(
    versions: Sequence[tuple[str, Comparison | None]], bound: float | None, code: int, stream: TextIO, quiet: bool
) -> tuple[int, list[dict[str, object]]]:
    """Show the answer of the gate; returns the exit code, and each arm over its earlier version as JSON values."""
    rows: list[dict[str, object]] = []
    for arm, found in versions:
        if found is not None:
            interval = interval_of(found)
            low, high = (interval.low, interval.high) if interval else (None, None)
            row = {"arm": arm, "ratio": found.ratio, "low": low, "high": high, "verdict": str(found.verdict)}
            rows.append({**row, "too_slow": bound is not None and is_too_slow(found, bound)})
    if bound is None:
        return code, rows
    slow = [arm for arm, found in versions if is_too_slow(found, bound)]
    unsure = [arm for arm, found in versions if may_be_too_slow(found, bound)]
    compared = sum(interval_of(found) is not None for _, found in versions)
    if slow or compared < len(versions) or not quiet:
        echo_wrapped([gate_sentence(bound, slow, unsure, compared)], stream)
    if slow and not code:
        code = ExitCode.FAILED
    return code if code or 0 < compared == len(versions) else ExitCode.NOTHING_COMPARED, rows


def plan_of(session: Session) -> BenchPlan:
    """What to print of a bench that a scheduler will run."""
    return BenchPlan((*session.notes, *refusals(session.arms.refused)), session.arms.warnings)


def report_on(session: Session, stream: TextIO, quiet: bool) -> "Report | None":
    """Report on the records that the folder has now, even if the bench was interrupted; None: nothing was measured."""
    folder = read_folder(session.root, "")
    if not folder.records and not folder.unreadable:
        typer.echo("no turn was measured: no report", err=True)
        return None
    from tfdist.bench.report.write import report_bench
    from tfdist.cli.show.report import show

    report, warning = report_bench(session.root, session.bench.machine)
    if warning:
        typer.echo(f"tfdist: {warning}", err=True)
    list_skipped((), report.skipped)
    if not quiet:
        show(report, stream)
    return report


def _show_rest(session: Session, selection: HostSelection, policy: Policy, quiet: bool, *, interrupted: bool) -> None:
    """Say how to measure the turns that are left, --quiet or not, and which arms were refused."""
    left = session.count_left()
    if left and (interrupted or left < len(session.planned)):  # else all arms fail
        words = ["tfdist", "bench", "--resume", str(session.root), *selection.options, *timeout_words(policy)]
        if session.traces.folders:
            words.append("--trace")
        if session.budget_s is not None:
            words += ["--budget", f"{session.budget_s:g}"]
        total = counted(len(session.planned), "turn")
        typer.echo(f"{left} of {total} left; to continue: {shlex.join(words)}", err=True)
    if quiet:  # else the report has them
        sys.stderr.writelines(f"{line}\n" for line in refusals(session.arms.refused))


def _suites(incomplete: str) -> list[str]:
    pattern = Path(f"{incomplete}*.toml")
    return [*built_in_suites(), *sorted(map(str, pattern.parent.glob(pattern.name)))]


OPTIONS: dict[str, Any] = option_rows(
    WHAT,
    suite=(
        str,
        "quick, smoke, cpu, gpu, hosts, knobs, classic, convergence, stragglers, storage, batch, or a .toml file. "
        "Default: hosts with --hosts, gpu with GPUs, else cpu.",
        {"complete": _suites},
    ),
    arm=(list[str], "Only arms that match, for example 'mirrored/*'. Repeatable."),
    # without SWEEP, the variables of these three are for launch
    strategy=(
        str,
        "Measure how one strategy scales, without a suite: with --devices or --workers.",
        {"complete": lambda: [*map(str, SWEPT)], "variable": "TFDIST_SWEEP_STRATEGY"},
    ),
    devices=(str, "With --strategy: an arm for each count of devices, as 1,2,4.", {"variable": "TFDIST_SWEEP_DEVICES"}),
    workers=(str, "With --strategy: an arm for each count of workers, as 1,2,4.", {"variable": "TFDIST_SWEEP_WORKERS"}),
    against=(
        str,
        "Run each arm also with an earlier version of your program, in turns with it: a git revision, as HEAD~1, or "
        "a folder that starts with ./, ../ or /. Adds starts until each ratio is known to within 7%.",
    ),
    fail_slower=(
        str,
        "With --against: exit with code 1 if the whole interval of an arm is slower by more than this: 5% or "
        "0.05. Adds starts.",
    ),
    baseline=(str, "The arm that all others are compared with. Default: the suite's, or one-device."),
    explain=(bool, "Divide the time that each arm of several devices loses into its causes. Adds the arms it needs."),
    trace=(bool, "After its turns, trace five steps of each arm with tf.profiler, for TensorBoard."),
    collectives=(Path, "Results of 'tfdist collectives' on these hosts, for the most images/s the network allows."),
)
OPTIONS |= option_rows(
    TIMING,
    rounds=(int, "Turns of each arm, in all; fewer than 3 give no verdict. Default: the suite's, or 12."),
    turn=(Seconds, "Timed part of a turn, for example 5s. Default: the suite's, or 2.5s."),
    incarnations=(
        int,
        "Starts of each arm's processes, over which the rounds are spread; fewer than 4 find large differences "
        "only. Default: the suite's, or 4.",
    ),
    isolated=(bool, "Restart an arm's processes for each turn, with no other arm alive. Slow."),
    budget=(Seconds, "As many starts and rounds as fit into this time, as 10m. With --rounds: at most that many."),
    all=(bool, "Measure every arm to the end. Default: those that are slower for sure are dropped after a start."),
    equal=(
        str,
        "End when each arm is slower than the best for sure, or surely not faster by more than this share. Default: "
        "the suite's, or 5%.",
    ),
    precision=(
        str,
        "Add starts until every ratio is known to within this share, as 3%, or --budget is used up.",
        {"variable": "TFDIST_BENCH_PRECISION"},  # TFDIST_PRECISION is for launch
    ),
    seed=(int, "Seed of the order of starts and turns. Default: the suite's."),
)
OPTIONS |= option_rows(
    OUTPUT,
    out=(Path, "A new folder for the results. Default: bench_results/TIME-SUITE."),
    resume=(
        Path,
        "Continue the bench in this folder; with --rounds, up to that many.",
        {"variable": "TFDIST_RESUME_BENCH"},  # TFDIST_RESUME is for launch
    ),
)
"""The options of a bench: annotations by name, in the order of the help."""
_FIELDS = {"arm": "patterns", "turn": "turn_s", "budget": "budget_s"}


def bench_options(given: Mapping[str, Any], program: list[str] | None) -> BenchOptions:
    """What values of `OPTIONS` mean, for the built-in training or the user's own program; None: not given.

    Raises:
        TfdistError: one is wrong.
    """
    values = {_FIELDS.get(name, name): value for name, value in given.items() if value is not None}
    values["patterns"] = tuple(values.get("patterns", ()))
    sweep = read_sweep(*(values.pop(name, None) for name in ("strategy", "devices", "workers")))
    for name, flag in (("fail_slower", "--fail-slower"), ("precision", "--precision"), ("equal", "--equal")):
        if name in values:
            values[name] = parse_share(values[name], flag)
    command = redact_command(this_command())
    return BenchOptions(sweep=sweep, command=command, program=tuple(program or ()), **values)


DryRun = Annotated[bool, option("--dry-run", "Show the turns and about how long they take; start nothing.")]
Quiet = Annotated[bool, option("--quiet", "Print only the path of the report.", short=("-q",))]


NOT_FOR_BENCHES = ("workers_per_host",)
"""A suite sets the number of workers of each arm."""
Command = Annotated[list[str] | None, argument("-- COMMAND", "Measure your own program under the suite's strategies.")]


def refuse_suite(command: list[str] | None) -> None:
    """Refuse a suite in the place of a program.

    Raises:
        TfdistError: the program is named like a suite.
    """
    name = command[0] if command else ""
    if name.endswith(".toml") or name in built_in_suites():
        raise TfdistError(f"{name}: unexpected argument; a suite is given with --suite {name}")


@host_options(NOT_FOR_BENCHES)
@timeout_options()
@gather("given", OPTIONS)
def bench(
    ctx: typer.Context,
    command: Command = None,
    *,
    copy: Copy = None,
    given: Mapping[str, Any],
    dry_run: DryRun = False,
    json: Json = False,
    export: Export = None,
    quiet: Quiet = False,
    selection: HostSelection,
    policy: Policy,
) -> None:
    """Measure every arm of a suite, in turns. Each round has a turn of every arm; the result is a report with plots.

    \b
    Examples:
      tfdist bench --suite quick
      tfdist bench --suite cpu --rounds 20 --turn 5s
      tfdist bench --suite cpu --budget 10m
      tfdist bench --suite cpu --precision 4% --budget 1h
      tfdist bench --arm one-device --arm 'mirrored/*'
      tfdist bench --suite cpu --baseline multiworker/ring
      tfdist bench --strategy mirrored --devices 1,2,4,8
      tfdist bench --strategy multiworker --workers 1,2,4 -- python train.py
      tfdist bench --arm one-device --against HEAD~1 --fail-slower 5% -- python train.py     # in a CI job
      tfdist bench --suite cpu -- python train.py --batch-size 32
      tfdist bench --suite my.toml --dry-run
      tfdist bench --resume bench_results/20260101T120000Z-cpu --rounds 24
      tfdist bench --hosts h1,h2 --suite hosts
      tfdist bench --hosts h1,h2 --copy -- python train.py
      tfdist bench --suite cpu --explain
      tfdist bench --suite cpu --collectives bench_results/20260101T120000Z-collectives
      tfdist bench --suite cpu --export github > figures.json

    An arm's processes are started --incarnations times, and wait while other arms have their turns. Every turn is
    saved when it ends. After Ctrl-C, the report covers the turns so far.

    Your own program says what a step is with tfdist.measure.steps() or tfdist.measure.Callback().

    The exit code is 1 if an arm failed or is slower than --fail-slower allows, 3 if --fail-slower is given and an arm
    was not compared, 130 after Ctrl-C, else 0. An arm for which the hardware is missing is refused.
    """
    refuse_tf_config()
    refuse_suite(command)
    if dry_run and export not in (None, ExportFormat.JSON):
        raise TfdistError(f"--export {export}: a dry run measures nothing; omit --dry-run")
    options = bench_options(given, command)
    if (scheduler := scheduler_of(ctx)) is not None:
        scheduler.submit(ctx, lambda machines: plan_of(prepare(options, machines)), policy)
        return
    form = export_form(export, json)
    options = replace(options, copy=program_copy(copy, own=True, quiet=quiet))
    check_no_chdir(selection.hosts, options.copy)
    run = partial(run_bench, options, selection, policy, dry_run=dry_run, export=form, quiet=quiet)
    finish(run, until_read=dry_run or form is not None)
