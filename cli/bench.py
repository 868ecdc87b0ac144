"""`tfdist bench`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from tfdist.cli.host_options import FOR_A_BENCH, host_options
from tfdist.cli.options import WHAT, option, refuse_tf_config
from tfdist.launch.json_files import dumps

if TYPE_CHECKING:
    from tfdist.bench.session import Session
    from tfdist.cli.host_selection import HostSelection
    from tfdist.launch.agents.fleet import Fleet
    from tfdist.launch.doctor.links import Links

Suite = Annotated[
    str | None,
    option(
        "--suite",
        "smoke, cpu, gpu, hosts, or a .toml file. Default: hosts for several, gpu if one is there, else cpu.",
        WHAT,
    ),
]
Rounds = Annotated[
    int | None, option("--rounds", "How often each arm is run; 3 or more for a verdict. Default: the suite's.", WHAT)
]
ArmPattern = Annotated[
    list[str] | None, option("--arm", "Only arms that match, as 'mirrored/*'; may be repeated.", WHAT)
]
Seed = Annotated[int | None, option("--seed", "Of the order of runs within a round. Default: the suite's.", WHAT)]
Out = Annotated[Path | None, option("--out", "A new folder for the results. Default: bench_results/TIME-SUITE.")]
Resume = Annotated[Path | None, option("--resume", "Go on with the bench in this folder; what failed is run again.")]
DryRun = Annotated[bool, option("--dry-run", "Show the plan; start nothing.")]
Json = Annotated[bool, option("--json", "The report as JSON in stdout's last line; all else goes to stderr.")]
Silent = Annotated[bool, option("--quiet", "Print only where the report is.", short=("-q",))]


@host_options(FOR_A_BENCH)
def bench(
    suite: Suite = None,
    rounds: Rounds = None,
    arm: ArmPattern = None,
    seed: Seed = None,
    out: Out = None,
    resume: Resume = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Silent = False,
    *,
    selection: "HostSelection",
) -> None:
    """Measure every arm of a suite, round by round in fresh processes, and write a report with plots.

    \b
    Examples:
      tfdist bench --suite smoke
      tfdist bench --suite cpu --rounds 5
      tfdist bench --arm one-device --arm 'mirrored/*'
      tfdist bench --suite my.toml --dry-run
      tfdist bench --resume bench_results/20260101T120000Z-cpu
      tfdist bench --hosts h1,h2 --suite hosts

    Every run is saved when it ends: after Ctrl-C the report is made from what there is, and --resume goes on.

    The exit code is 0 if no arm failed, 1 if one did. An arm that this machine cannot run is a row with its reason.
    """
    from tfdist.bench.session import BenchOptions, prepare
    from tfdist.launch.environment import redact_command
    from tfdist.models.presets import resolve

    refuse_tf_config()
    stream = sys.stderr if json else sys.stdout
    command = redact_command(["tfdist", *sys.argv[1:]])
    asked = BenchOptions(suite, rounds, tuple(arm or ()), out, resume, seed, command)
    with selection.connected() as fleet:
        session = prepare(asked, selection.raw_machines(fleet), resolve)
        if dry_run:
            show_plan(session, json)
            return
        if not quiet:
            announce(session, stream)
        links = measure_links(fleet, session)
        if not quiet:
            tell_links(links, stream)
    code = measure(session, links, stream, quiet)
    report_on(session, code, stream, json, quiet)
    tell_what_is_left(session, selection)
    raise typer.Exit(code)


def measure_links(fleet: "Fleet | None", session: "Session") -> "Links":
    """The ways between neighbouring hosts that some arm will use."""
    from tfdist.launch.doctor.links import neighbours

    most = max((len(machines) for machines in session.arms.machines.values()), default=1)
    if fleet is None or most < 2:
        return {}
    return neighbours(fleet, list(fleet.channels)[:most])


def tell_links(links: "Links", stream: TextIO) -> None:
    """A line for each way."""
    for (one, other), link in links.items():
        typer.echo(f"{one.name} -> {other.name}: {link.in_words()}", file=stream)


def announce(session: "Session", stream: TextIO) -> None:
    """What is going to happen, and what cannot."""
    suite, runs = session.bench.suite, len(session.to_run)
    again = f", {len(session.bench.plan)} planned" if session.before else ""
    size = f"{counted(len(suite.arms), 'arm')} x {counted(suite.rounds, 'round')}"
    typer.echo(
        f"suite {suite.name}: {size}, {suite.scaling} scaling, seed {suite.seed}; "
        f"{counted(runs, 'run')} to make{again}; results in {session.root}",
        file=stream,
    )
    reasons = dict.fromkeys(session.arms.refused.values())
    for reason in reasons:
        names = [name for name, its in session.arms.refused.items() if its == reason]
        typer.echo(f"refused: {', '.join(names)}: {reason}", file=stream)
    for warning in session.arms.warnings:
        typer.echo(f"warning: {warning}", file=stream)


def counted(number: int, what: str) -> str:
    """`1 round`, `3 rounds`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def show_plan(session: "Session", json: bool) -> None:
    """The runs in their order; nothing is started."""
    specs, refused = session.arms.specs, session.arms.refused
    if json:
        plan = [{"round": run.round, "arm": run.arm, "spec": specs[run.arm].to_json()} for run in session.to_run]
        told = {"format": 1, "folder": str(session.root), "suite": session.bench.suite.to_json(), "plan": plan}
        typer.echo(dumps({**told, "refused": refused}))
        return
    announce(session, sys.stdout)
    for number, run in enumerate(session.to_run, start=1):
        spec = specs[run.arm]
        what = f"{spec.strategy}, {spec.replicas} x batch {spec.batch_size}, {spec.image_size} px, {spec.steps} steps"
        typer.echo(f"{number:3d}. round {run.round}  {run.arm}  ({what})")


def measure(session: "Session", links: "Links", stream: TextIO, quiet: bool) -> int:
    """Make the runs, showing how far they are; the exit code."""
    from tfdist.bench.progress import progress_on
    from tfdist.bench.run import RunnerHooks
    from tfdist.bench.session import busy_now, run_session
    from tfdist.models.run import run_spec

    with progress_on(stream, quiet) as progress:
        return run_session(session, RunnerHooks(run_spec, progress, busy_now, links))


def report_on(session: "Session", code: int, stream: TextIO, json: bool, quiet: bool) -> None:
    """Make the report from what the folder holds now, however the bench ended."""
    from tfdist.bench.report.build import make_report, write_report
    from tfdist.cli.show_report import name_unreadable, show

    report = make_report([session.root])
    path = write_report(report, session.root)
    name_unreadable(report)
    if not quiet:
        show(report, stream)
    if not (json and quiet):
        typer.echo(f"report: {path}", file=stream)
    if json:
        typer.echo(dumps({"exit_code": code, "folder": str(session.root), **report.to_json()}))


def tell_what_is_left(session: "Session", selection: "HostSelection") -> None:
    """How many runs are still to be made, and the command that makes them on the same hosts."""
    from tfdist.bench.session import missing

    left = missing(session)
    if left:
        again = shlex.join(["tfdist", "bench", "--resume", str(session.root), *selection.options])
        typer.echo(f"{counted(left, 'run')} of {len(session.bench.plan)} still to be made: {again}", err=True)
