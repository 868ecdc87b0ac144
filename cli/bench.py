"""`tfdist bench`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from tfdist.bench.folder import BenchPaths
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import progress_on
from tfdist.bench.reading import read_folder
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import Session, prepare, run_session
from tfdist.bench.suites.suite import built_in_suites
from tfdist.cli.options import Json, host_options, option, refuse_tf_config, seconds, timeout_options
from tfdist.cli.scheduler import BenchPlan
from tfdist.cli.show.bench import announce, limits, refusals, show_plan, show_traces
from tfdist.cli.show.output import never_block, wait_for_reader
from tfdist.cli.show.steps import connected
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.options import TIMING, WHAT, Seconds
from tfdist.jobs.recovery import timeout_words
from tfdist.launch.doctor.preflight import measure_neighbours
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_command
from tfdist.launch.text import counted

if TYPE_CHECKING:
    from tfdist.bench.report.build import Report


def run_bench(
    options: BenchOptions, selection: HostSelection, policy: Policy, *, dry_run: bool, json: bool, quiet: bool
) -> int:
    """Check the bench, run it and report on it; returns the exit code.

    Raises:
        TfdistError: an option or the suite is wrong.
    """
    stream = sys.stderr if json else sys.stdout
    with connected(selection, policy, quiet=quiet) as fleet:
        session = prepare(options, selection.raw_machines(fleet))
        if dry_run:
            show_plan(session, json)
            return 0
        if not quiet:
            announce(session, stream)
        # the links between neighbouring hosts that some arm uses
        most = max((len(machines) for machines in session.arms.machines.values()), default=1)
        links = {} if fleet is None or most < 2 else measure_neighbours(fleet, list(fleet.channels)[:most])
        if not quiet:
            for (one, other), link in links.items():
                typer.echo(f"{one.name} -> {other.name}: {link}", file=stream)
            for text in limits(session, links):
                typer.echo(text, file=stream)
    with progress_on(stream, quiet, "examples/s" if session.arms.commands else "images/s") as progress:
        code = run_session(session, RunnerHooks(progress, links=links, policy=policy))
    if session.traces.folders and not quiet:
        show_traces(session, stream)
    report = report_on(session, stream, quiet)
    _show_rest(session, selection, policy, interrupted=code > 128)
    if report and not (json and quiet):
        typer.echo(f"report: {BenchPaths(session.root).page}", file=stream)
    if json:
        content = report.to_json() if report else {}
        typer.echo(dumps({"exit_code": code, "folder": str(session.root), **content}))
    return code


def plan_of(session: Session) -> BenchPlan:
    """What to print of a bench that a scheduler will run."""
    return BenchPlan(
        (*session.notes, *(f"refused: {text}" for text in refusals(session.arms.refused))), session.arms.warnings
    )


def report_on(session: Session, stream: TextIO, quiet: bool) -> "Report | None":
    """Report on the records that the folder has now, even if the bench was interrupted; None: nothing was measured."""
    folder = read_folder(session.root, "")
    if not folder.records and not folder.unreadable:
        typer.echo("no turn was measured: no report", err=True)
        return None
    from tfdist.bench.report.build import make_report
    from tfdist.bench.report.write import write_report
    from tfdist.cli.show.report import list_unreadable, show

    report = make_report([session.root])
    write_report(report, session.root)
    list_unreadable(report)
    if not quiet:
        show(report, stream)
    return report


def _show_rest(session: Session, selection: HostSelection, policy: Policy, *, interrupted: bool) -> None:
    """Say how to measure the turns that are left, and which arms were refused, --quiet or not."""
    left = session.count_left()
    if left and (interrupted or left < len(session.planned)):  # else all arms fail
        words = ["tfdist", "bench", "--resume", str(session.root), *selection.options, *timeout_words(policy)]
        total = counted(len(session.planned), "turn")
        typer.echo(f"{left} of {total} left; to continue: {shlex.join(words)}", err=True)
    if session.arms.refused:
        number = f"{len(session.arms.refused)} of {counted(len(session.bench.suite.arms), 'arm')}"
        typer.echo(f"refused: {number}: {'; '.join(refusals(session.arms.refused))}", err=True)


def _suites(incomplete: str) -> list[str]:
    pattern = Path(f"{incomplete}*.toml")
    files = sorted(map(str, pattern.parent.glob(pattern.name)))
    return [*(name for name in built_in_suites() if name.startswith(incomplete)), *files]


Suite = Annotated[
    str | None,
    option(
        "--suite",
        "smoke, cpu, gpu, hosts, knobs, classic, convergence, stragglers, storage, batch, or a .toml file. "
        "Default: hosts with --hosts, gpu with GPUs, else cpu.",
        WHAT,
        complete=_suites,
    ),
]
ArmPattern = Annotated[
    list[str] | None, option("--arm", "Only arms that match, for example 'mirrored/*'. Repeatable.", WHAT)
]
Rounds = Annotated[
    int | None,
    option("--rounds", "Turns of each arm, in all; 3 or more for a verdict. Default: the suite's, or 12.", TIMING),
]
Turn = Annotated[
    Seconds | None, seconds("--turn", "Timed part of a turn, for example 5s. Default: the suite's, or 2.5s.", TIMING)
]
Incarnations = Annotated[
    int | None,
    option(
        "--incarnations",
        "Starts of each arm's processes, over which the rounds are spread. Default: the suite's, or 2.",
        TIMING,
    ),
]
Isolated = Annotated[
    bool, option("--isolated", "Restart an arm's processes for each turn, with no other arm alive. Slow.", TIMING)
]
Budget = Annotated[
    Seconds | None,
    seconds(
        "--budget", "As many rounds as fit into this time, for example 10m. With --rounds: at most that many.", TIMING
    ),
]
Explain = Annotated[
    bool,
    option(
        "--explain",
        "Divide the time that each arm with several devices loses into its causes. Adds the arms this needs.",
        WHAT,
    ),
]
Collectives = Annotated[
    Path | None,
    option(
        "--collectives",
        "Results of 'tfdist collectives' on these hosts, for the most images/s that the network allows.",
        WHAT,
    ),
]
Trace = Annotated[
    bool, option("--trace", "After its turns, trace five steps of each arm with tf.profiler, for TensorBoard.", WHAT)
]
Seed = Annotated[int | None, option("--seed", "Seed of the order of turns. Default: the suite's.", TIMING)]
Out = Annotated[Path | None, option("--out", "A new folder for the results. Default: bench_results/TIME-SUITE.")]
Resume = Annotated[
    Path | None,
    option(
        "--resume",
        "Continue the bench in this folder; with --rounds, up to that many. Variable: TFDIST_RESUME_BENCH.",
        variable="TFDIST_RESUME_BENCH",  # TFDIST_RESUME is for launch
    ),
]
DryRun = Annotated[bool, option("--dry-run", "Show the turns and about how long they take; start nothing.")]
Quiet = Annotated[bool, option("--quiet", "Print only the path of the report.", short=("-q",))]


NOT_FOR_BENCHES = ("workers_per_host",)
"""A suite sets the number of workers of each arm."""
Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND", help="Measure your own program under the suite's strategies.", show_default=False
    ),
]


def refuse_suite(command: list[str] | None) -> None:
    """Refuse a suite in the place of a program.

    Raises:
        TfdistError: the program is named like a suite.
    """
    name = command[0] if command else ""
    if name.endswith(".toml") or (name and name in _suites(name)):
        raise TfdistError(f"{name}: unexpected argument; a suite is given with --suite {name}")


@host_options(NOT_FOR_BENCHES)
@timeout_options()
def bench(
    ctx: typer.Context,
    command: Command = None,
    suite: Suite = None,
    arm: ArmPattern = None,
    rounds: Rounds = None,
    turn: Turn = None,
    incarnations: Incarnations = None,
    isolated: Isolated = False,
    budget: Budget = None,
    explain: Explain = False,
    trace: Trace = False,
    collectives: Collectives = None,
    seed: Seed = None,
    out: Out = None,
    resume: Resume = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    *,
    selection: HostSelection,
    policy: Policy,
) -> None:
    """Measure every arm of a suite, in turns. Each round has a turn of every arm; the result is a report with plots.

    \b
    Examples:
      tfdist bench --suite smoke
      tfdist bench --suite cpu --rounds 20 --turn 5s
      tfdist bench --suite cpu --budget 10m
      tfdist bench --arm one-device --arm 'mirrored/*'
      tfdist bench --suite cpu -- python train.py --batch-size 32
      tfdist bench --suite my.toml --dry-run
      tfdist bench --resume bench_results/20260101T120000Z-cpu --rounds 24
      tfdist bench --hosts h1,h2 --suite hosts
      tfdist bench --suite cpu --explain
      tfdist bench --suite cpu --collectives bench_results/20260101T120000Z-collectives

    An arm's processes start once in an incarnation and wait while other arms have their turns. Every turn is saved
    when it ends. After Ctrl-C, the report covers the turns so far.

    Your own program says what a step is with tfdist.measure.steps() or tfdist.measure.Callback().

    The exit code is 1 if an arm failed, 130 after Ctrl-C, else 0. An arm for which the hardware is missing is refused.
    """
    refuse_tf_config()
    refuse_suite(command)
    options = BenchOptions(
        suite=suite,
        rounds=rounds,
        patterns=tuple(arm or ()),
        out=out,
        resume=resume,
        seed=seed,
        command=redact_command(["tfdist", *sys.argv[1:]]),
        turn_s=turn,
        incarnations=incarnations,
        isolated=isolated,
        budget_s=budget,
        program=tuple(command or ()),
        explain=explain,
        trace=trace,
        collectives=collectives,
    )
    if ctx.obj is not None:
        ctx.obj.submit(ctx, lambda machines: plan_of(prepare(options, machines)), policy)
        return
    never_block()
    code = run_bench(options, selection, policy, dry_run=dry_run, json=json, quiet=quiet)
    if dry_run:
        wait_for_reader()
    raise typer.Exit(code)
