"""`tfdist bench`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from tfdist.cli.host_options import FOR_A_BENCH, host_options
from tfdist.cli.options import WHAT, Json, option, refuse_tf_config
from tfdist.cli.output import never_block, wait_for_reader
from tfdist.cli.timeout_options import timeout_options, timeout_words
from tfdist.launch.json_files import dumps
from tfdist.launch.text import counted, duration

if TYPE_CHECKING:
    from tfdist.bench.session import BenchOptions, Session
    from tfdist.cli.host_selection import HostSelection
    from tfdist.launch.agents.fleet import Fleet
    from tfdist.launch.doctor.links import Links
    from tfdist.launch.policy import Policy


def _suites(incomplete: str) -> list[str]:
    from tfdist.bench.suites.suite import built_in_suites

    pattern = Path(f"{incomplete}*.toml")
    files = sorted(map(str, pattern.parent.glob(pattern.name)))
    return [*(name for name in built_in_suites() if name.startswith(incomplete)), *files]


Suite = Annotated[
    str | None,
    option(
        "--suite",
        "smoke, cpu, gpu, hosts, or a .toml file. Default: hosts with --hosts, gpu on a machine with GPUs, else cpu.",
        WHAT,
        complete=_suites,
    ),
]
Rounds = Annotated[
    int | None, option("--rounds", "Runs of each arm; 3 or more for a verdict. Default: the suite's.", WHAT)
]
ArmPattern = Annotated[
    list[str] | None, option("--arm", "Only arms that match, for example 'mirrored/*'. Repeatable.", WHAT)
]
Seed = Annotated[int | None, option("--seed", "Seed of the order of runs. Default: the suite's.", WHAT)]
Out = Annotated[Path | None, option("--out", "A new folder for the results. Default: bench_results/TIME-SUITE.")]
Resume = Annotated[Path | None, option("--resume", "Continue the bench in this folder; repeats failed runs.")]
DryRun = Annotated[bool, option("--dry-run", "Show the runs and about how long they take; start nothing.")]
Quiet = Annotated[bool, option("--quiet", "Print only the path of the report.", short=("-q",))]


@host_options(FOR_A_BENCH)
@timeout_options()
def bench(
    suite: Suite = None,
    rounds: Rounds = None,
    arm: ArmPattern = None,
    seed: Seed = None,
    out: Out = None,
    resume: Resume = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    *,
    selection: "HostSelection",
    policy: "Policy",
) -> None:
    """Measure every arm of a suite. Each round runs every arm once; the result is a report with plots.

    \b
    Examples:
      tfdist bench --suite smoke
      tfdist bench --suite cpu --rounds 5
      tfdist bench --arm one-device --arm 'mirrored/*'
      tfdist bench --suite my.toml --dry-run
      tfdist bench --resume bench_results/20260101T120000Z-cpu
      tfdist bench --hosts h1,h2 --suite hosts

    Each run is a training in fresh processes, saved when it ends. After Ctrl-C, the report covers the runs so far.

    The exit code is 1 if an arm failed, 130 after Ctrl-C, else 0. An arm that this machine cannot run is refused.
    """
    from tfdist.bench.session import BenchOptions
    from tfdist.launch.redact import redact_command

    refuse_tf_config()
    command = redact_command(["tfdist", *sys.argv[1:]])
    options = BenchOptions(suite, rounds, tuple(arm or ()), out, resume, seed, command)
    never_block()
    code = _run(options, selection, policy, dry_run, json, quiet)
    if dry_run:
        wait_for_reader()
    raise typer.Exit(code)


def _run(
    options: "BenchOptions", selection: "HostSelection", policy: "Policy", dry_run: bool, json: bool, quiet: bool
) -> int:
    from tfdist.bench.session import prepare

    stream = sys.stderr if json else sys.stdout
    with selection.connected(policy, quiet=quiet) as fleet:
        session = prepare(options, selection.raw_machines(fleet))
        if dry_run:
            _show_plan(session, json)
            return 0
        if not quiet:
            _announce(session, stream)
        links = _measure_links(fleet, session)
        if not quiet:
            for (one, other), link in links.items():
                typer.echo(f"{one.name} -> {other.name}: {link}", file=stream)
    code = _execute(session, links, policy, stream, quiet)
    _report(session, code, stream, json, quiet)
    left = session.count_left()
    if left:
        command = shlex.join(
            ["tfdist", "bench", "--resume", str(session.root), *selection.options, *timeout_words(policy)]
        )
        typer.echo(f"{left} of {counted(len(session.bench.plan), 'run')} left; to continue: {command}", err=True)
    return code


def _measure_links(fleet: "Fleet | None", session: "Session") -> "Links":
    """The links between neighbouring hosts that some arm uses."""
    from tfdist.launch.doctor.preflight import measure_neighbours

    most = max((len(machines) for machines in session.arms.machines.values()), default=1)
    if fleet is None or most < 2:
        return {}
    return measure_neighbours(fleet, list(fleet.channels)[:most])


def _announce(session: "Session", stream: TextIO) -> None:
    """Show the suite, its purpose, the size of the bench, and the arms that cannot run."""
    suite, runs, estimate_s = session.bench.suite, len(session.to_run), session.estimate_s
    size = f"{counted(len(suite.arms), 'arm')} x {counted(suite.rounds, 'round')}"
    rest = f" of {len(session.bench.plan)} left" if session.before else ""
    time = "time unknown before the first run" if estimate_s is None else f"about {duration(estimate_s)}"
    lines = [f"suite {suite.name}: {size}, {suite.scaling} scaling, seed {suite.seed}"]
    lines += [suite.description] if suite.description else []
    lines += [f"{counted(runs, 'run')}{rest}{f', {time}' if runs else ''}; results in {session.root}"]
    for reason in dict.fromkeys(session.arms.refused.values()):
        names = [name for name, refusal in session.arms.refused.items() if refusal == reason]
        lines.append(f"refused: {', '.join(names)}: {reason}")
    lines += [f"warning: {warning}" for warning in session.arms.warnings]
    typer.echo("\n".join(lines), file=stream)


def _show_plan(session: "Session", json: bool) -> None:
    specs, refused = session.arms.specs, session.arms.refused
    if json:
        plan = [{"round": run.round, "arm": run.arm, "spec": specs[run.arm].to_json()} for run in session.to_run]
        summary = {"folder": str(session.root), "estimate_s": session.estimate_s, "refused": refused}
        typer.echo(dumps({"format": 1, **summary, "suite": session.bench.suite.to_json(), "plan": plan}))
        return
    _announce(session, sys.stdout)
    for number, run in enumerate(session.to_run, start=1):
        spec = specs[run.arm]
        work = f"{spec.strategy}, {spec.replicas} x batch {spec.batch_size}, {spec.image_size} px, {spec.steps} steps"
        typer.echo(f"{number:3d}. round {run.round}  {run.arm}  ({work})")


def _execute(session: "Session", links: "Links", policy: "Policy", stream: TextIO, quiet: bool) -> int:
    from tfdist.bench.progress import progress_on
    from tfdist.bench.run import RunnerHooks
    from tfdist.bench.session import busy_now, run_session
    from tfdist.models.run import run_spec

    with progress_on(stream, quiet) as progress:
        return run_session(session, RunnerHooks(run_spec, progress, busy_now, links, policy))


def _report(session: "Session", code: int, stream: TextIO, json: bool, quiet: bool) -> None:
    """Report on the records that the folder has now, even if the bench was interrupted."""
    from tfdist.bench.report.build import make_report
    from tfdist.bench.report.write import write_report
    from tfdist.cli.show_report import list_unreadable, show

    report = make_report([session.root])
    path = write_report(report, session.root)
    list_unreadable(report)
    if not quiet:
        show(report, stream)
    if not (json and quiet):
        typer.echo(f"report: {path}", file=stream)
    if json:
        typer.echo(dumps({"exit_code": code, "folder": str(session.root), **report.to_json()}))
