"""`tfdist collectives`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

import typer

from tfdist.bench.collectives.figures import SizeFigure, disturbed_turns, figures_of, noise_sentences, pack_sentences
from tfdist.bench.collectives.plan import CollectiveOptions, CollectivePlan, plan_collectives
from tfdist.bench.collectives.results import Sweep, read_collectives
from tfdist.bench.collectives.run import run_collectives
from tfdist.bench.collectives.table import columns_for, lines_of_table, to_json
from tfdist.bench.progress import progress_on
from tfdist.bench.runner import RunnerHooks
from tfdist.cli.bench import NOT_FOR_BENCHES, Quiet
from tfdist.cli.options import Json, gather, host_options, option, refuse_tf_config, timeout_options, training_options
from tfdist.cli.run_argument import option_rows
from tfdist.cli.scheduler import BenchPlan, scheduler_of
from tfdist.cli.show.bench import PLAN_INDENT, refusals
from tfdist.cli.show.output import columns_of, finish
from tfdist.cli.show.rows import echo_wrapped
from tfdist.cli.show.steps import connected
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.options import HOW, OUTPUT, SIZE, TIMING, WHAT, Seconds
from tfdist.launch.doctor.preflight import measure_neighbours
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.policy import Policy
from tfdist.launch.quantities import parse_counts, parse_size, parse_sizes, size_text
from tfdist.launch.redact import redact_command
from tfdist.launch.text import counted, did_you_mean, duration, plain, shortened
from tfdist.launch.this_command import this_command
from tfdist.models.collectives.spec import CollectiveOp, CollectiveSpec
from tfdist.strategies import options as closed


def announce(plan: CollectivePlan, stream: TextIO) -> None:
    """Show what is measured, about how long it takes at least, and what cannot run."""
    options, arms = plan.options, plan.arms
    spec = next(iter(arms.specs.values()))  # all arms have the same sizes
    assert isinstance(spec, CollectiveSpec)
    sizes = [shortened(map(size_text, spec.sizes), 6)] if spec.sizes else []
    if spec.model_gradients:
        sizes.append(f"the gradients of {spec.model}")
    lines = (
        f"{options.op} of {' and '.join(sizes)}, {spec.gradient_dtype}",
        f"{counted(len(arms.specs), 'arm')} x {counted(options.rounds, 'round')} of {options.turn_s:g} s "
        f"in {counted(len(plan.starts), 'start')}, seed {options.seed}",
        f"{counted(len(plan.runs), 'turn')}, about {duration(_estimate_s(plan))}; results in {plan.root}",
        *refusals(arms.refused),
        *(f"warning: {warning}" for warning in arms.warnings),
    )
    echo_wrapped(lines, stream)


_START_S = 2.5
"""Seconds of the start of an arm on this machine. Starts on other hosts take longer, as do turns with large sizes."""


def _estimate_s(plan: CollectivePlan) -> float:
    return len(plan.runs) * plan.options.turn_s + len(plan.starts) * len(plan.arms.specs) * _START_S


def show_plan(plan: CollectivePlan, json: bool) -> None:
    """Print the turns in their order."""
    if json:
        turns = [{"round": run.round, "arm": run.arm} for run in plan.runs]
        specs = {arm: spec.to_json() for arm, spec in plan.arms.specs.items()}
        summary = {"folder": str(plan.root), "estimate_s": _estimate_s(plan), "refused": plan.arms.refused}
        typer.echo(dumps({"format": 1, **summary, "arms": specs, "starts": plan.starts, "plan": turns}))
        return
    announce(plan, sys.stdout)
    lines = [
        f"{number:3d}. round {run.round}  {run.arm}  ({counted(plan.arms.specs[run.arm].replicas, 'rank')})"
        for number, run in enumerate(plan.runs, start=1)
    ]
    echo_wrapped(lines, sys.stdout, PLAN_INDENT)


def show(sweep: Sweep, stream: TextIO) -> None:
    """Show a table for each arm, then what packs do, what is wrong and what was not measured."""
    figures = figures_of(sweep)
    width = columns_of(stream)
    for arm, group in groupby(figures, key=lambda figure: figure.line.arm):
        rows = list(group)
        first = rows[0].line
        where = f"{counted(first.ranks, 'rank')} on {counted(first.hosts, 'host')}"
        often = f"{counted(rows[0].rounds, 'round')} in {counted(rows[0].starts, 'start')}"
        echo_wrapped(["", f"{arm}: {first.op}, {where}, {often}"], stream)
        typer.echo(plain("\n".join(lines_of_table(columns_for(rows, width), rows))), file=stream)
    for sentence in _remarks(figures, sweep):
        echo_wrapped(["", sentence], stream, 0)


def _remarks(figures: Sequence[SizeFigure], sweep: Sweep) -> Iterator[str]:
    yield from (*pack_sentences(sweep.lines), *noise_sentences(sweep))
    yield from (f"warning: {turn}" for turn in disturbed_turns(sweep.lines))
    for figure in figures:
        if figure.wrong:
            where = f"{figure.line.arm} at {size_text(figure.line.bytes)}"
            yield f"wrong: {where}: {counted(figure.wrong, 'wrong element')}; do not train with it"
    yield from (f"not measured: {arm}: {reason}" for arm, reason in sweep.header.not_measured.items())
    yield from (f"skipped: {text}" for text in sweep.unreadable)


def run(
    options: CollectiveOptions, selection: HostSelection, policy: Policy, *, dry_run: bool, json: bool, quiet: bool
) -> int:
    """Check the measurement, run it and report on it; returns the exit code.

    Raises:
        TfdistError: an option is wrong, or no arm can run.
    """
    stream = sys.stderr if json else sys.stdout
    with connected(selection, policy, quiet=quiet) as fleet:
        plan = plan_collectives(options, selection.raw_machines(fleet))
        if dry_run:
            show_plan(plan, json)
            return ExitCode.SUCCESS
        if not quiet:
            announce(plan, stream)
        links = {} if fleet is None or len(fleet.hellos) < 2 else measure_neighbours(fleet, list(fleet.hellos))
    with progress_on(stream, quiet, "GB/s bus bandwidth of the largest size") as progress:
        code = run_collectives(plan, RunnerHooks(progress, links=links, policy=policy))
    return _report(plan, code, stream, json=json, quiet=quiet)


def _report(plan: CollectivePlan, code: int, stream: TextIO, *, json: bool, quiet: bool) -> int:
    """Report on what was measured, even if it was interrupted; a wrong result makes the command fail."""
    sweep = read_collectives(plan.root)
    if not sweep.lines:
        typer.echo(f"no turn was measured: no report; logs: {plan.root / 'runs'}", err=True)
    else:
        report_on(sweep, plan.root, stream, json=json, quiet=quiet)
    turns = len({(line.arm, line.round) for line in sweep.lines})
    if code > 128:
        typer.echo(f"interrupted: {turns} of {counted(len(plan.runs), 'turn')} were measured", err=True)
    if code == ExitCode.SUCCESS and any(line.wrong for line in sweep.lines):
        code = ExitCode.FAILED
    if json:
        typer.echo(dumps({"exit_code": code, "folder": str(plan.root), **to_json(sweep)}))
    return code


def report_on(sweep: Sweep, out: Path, stream: TextIO, *, json: bool, quiet: bool) -> Path:
    """Write the report of a sweep into `out` and show its figures; returns the path of its page.

    Raises:
        TfdistError: nothing was measured, or `out` is not writable.
    """
    from tfdist.bench.report.collectives_page import write_collectives

    path = write_collectives(sweep, out)
    if not quiet:
        show(sweep, stream)
    if not (json and quiet):
        typer.echo(f"report: {path}" if quiet else f"\nreport: {path}", file=stream)
    return path


def report_folder(root: Path, out: Path | None, *, json: bool) -> None:
    """`tfdist report` on a folder of collectives.

    Raises:
        TfdistError: it is not readable, nothing was measured, or the folder of the report is not writable.
    """
    sweep = read_collectives(root)
    path = report_on(sweep, out or root, sys.stderr if json else sys.stdout, json=json, quiet=False)
    if json:
        typer.echo(dumps({**to_json(sweep), "report": str(path)}))


Choice = TypeVar("Choice", bound=Enum)

OPTIONS: dict[str, Any] = option_rows(
    WHAT,
    op=(CollectiveOp, "all-reduce, all-gather, broadcast or reduce-to-one. Default: all-reduce."),
    sizes=(str, "1K:64M (each twice the one before), 1K:64M:4 (4 times) or 1K,64K,1M. Default: 1K:64M:4."),
    model_gradients=(bool, "All gradients of a model in one call, as in a training step. Without --sizes: only these."),
)
OPTIONS |= option_rows(
    SIZE,
    workers=(str, "Workers on all hosts, as 2,4. Default: as for launch.", {"variable": "TFDIST_SWEEP_WORKERS"}),
    devices=(str, "Devices of one process, as 2,4. Default: all GPUs; CPUs: 2.", {"variable": "TFDIST_SWEEP_DEVICES"}),
)
OPTIONS |= option_rows(
    HOW,
    communication=(str, "Between processes: auto, ring, nccl. Default: auto,ring, or ring,nccl with GPUs."),
    cross_device=(str, "Between devices of a process: auto, nccl, hierarchical-copy, reduction-to-one. Default: all."),
    bytes_per_pack=(
        str,
        "Pack sizes to try with --model-gradients, for example 1M,4M. One pack is added.",
        {"variable": "TFDIST_SWEEP_BYTES_PER_PACK"},
    ),
    gradient_dtype=(closed.GradientDtype, "float32, bfloat16 or float16. Default: float32."),
)
OPTIONS |= option_rows(
    TIMING,
    rounds=(int, "Turns of each arm, in all; 3 or more give intervals. Default: 12."),
    turn=(Seconds, "Timed part of a turn, divided between its sizes. Default: 2s."),
    incarnations=(int, "Starts of each arm's processes, over which the rounds are spread. Default: 4."),
    seed=(int, "Seed of the order of turns and sizes. Default: 0."),
)
OPTIONS |= option_rows(OUTPUT, out=(Path, "A new folder for the results. Default: bench_results/TIME-collectives."))
"""What is measured, and how: annotations by name, in the order of the help."""
DryRun = Annotated[bool, option("--dry-run", "Show the turns and the sizes; start nothing.")]


@host_options(NOT_FOR_BENCHES)
@timeout_options()
@training_options(("model", "alpha", "classes"))
@gather("given", OPTIONS)
def collectives(
    ctx: typer.Context,
    *,
    given: Mapping[str, Any],
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
    selection: HostSelection,
    policy: Policy,
    choices: Mapping[str, Any],
) -> None:
    """Measure all-reduce and other collectives by size. Through tf.distribute, in the words of the NCCL tests.

    \b
    Examples:
      tfdist collectives
      tfdist collectives --hosts h1,h2 --sizes 1K:64M
      tfdist collectives --workers 2,4 --communication ring --sizes 1M:256M:4
      tfdist collectives --devices 2 --cross-device auto,hierarchical-copy
      tfdist collectives --model-gradients --bytes-per-pack 512K,2M,8M
      tfdist collectives --op all-gather --sizes 1M,16M --rounds 3 --incarnations 1
      tfdist bench --collectives bench_results/20260101T120000Z-collectives

    An arm is a communication between processes (--workers, --communication) or between the devices of one process
    (--devices, --cross-device). Arms take turns, as in a bench; every turn measures all sizes, and is saved when it
    ends. Every result is checked: '#wrong' counts wrong elements. The default arms take about 3 minutes on two cores.

    The exit code is 1 if an arm failed or a result was wrong, 130 after Ctrl-C, else 0.
    """
    refuse_tf_config()
    as_given = ("op", "gradient_dtype", "rounds", "incarnations", "seed", "out")
    options = CollectiveOptions(
        **{name: given[name] for name in as_given if given[name] is not None},
        sizes=parse_sizes(given["sizes"]) if given["sizes"] else (),
        communication=_several(closed.Communication, given["communication"], "--communication"),
        cross_device=_several(closed.CrossDevice, given["cross_device"], "--cross-device"),
        workers=parse_counts(given["workers"], "--workers", 2) if given["workers"] else (),
        devices=parse_counts(given["devices"], "--devices", 2) if given["devices"] else (),
        model_gradients=bool(given["model_gradients"]),
        model=choices,
        pack_sizes=tuple(parse_size(part, "--bytes-per-pack", 0) for part in _words(given["bytes_per_pack"])),
        turn_s=given["turn"] or CollectiveOptions.turn_s,
        command=redact_command(this_command()),
    )
    if (scheduler := scheduler_of(ctx)) is not None:
        scheduler.submit(ctx, lambda machines: _batch_plan(plan_collectives(options, machines)), policy)
        return
    sweep = partial(run, options, selection, policy, dry_run=dry_run, json=json, quiet=quiet)
    finish(sweep, until_read=dry_run or json)


def _batch_plan(plan: CollectivePlan) -> BenchPlan:
    return BenchPlan(tuple(refusals(plan.arms.refused)), plan.arms.warnings)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _several(kind: type[Choice], text: str | None, flag: str) -> tuple[Choice, ...]:
    names, known = list(dict.fromkeys(_words(text))), list(map(str, kind))
    for name in names:
        if name not in known:
            raise TfdistError(f"{flag} {name}: {did_you_mean(name, known)}")
    return tuple(map(kind, names))
