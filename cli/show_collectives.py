"""Prints a measurement of collectives before it runs, and its figures in the columns of the NCCL tests."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TextIO

import typer

from tfdist.bench.collectives.figures import Figure, figures_of
from tfdist.bench.collectives.packs import pack_sentences
from tfdist.bench.collectives.plan import CollectivePlan
from tfdist.bench.collectives.results import Sweep
from tfdist.bench.collectives.table import columns_for, lines_of_table
from tfdist.bench.estimate import start_s
from tfdist.launch.json_files import dumps
from tfdist.launch.sizes import size_text
from tfdist.launch.text import counted, duration, plain, shortened
from tfdist.models.collectives.spec import CollectiveSpec


def announce(plan: CollectivePlan, stream: TextIO) -> None:
    """Show what is measured, about how long it takes at least, and what cannot run."""
    typer.echo("\n".join(_announcement(plan)), file=stream)


def _announcement(plan: CollectivePlan) -> Iterator[str]:
    options, arms = plan.options, plan.arms
    yield f"{options.op} of {_sizes(_first_spec(plan))}"
    size = f"{counted(len(arms.specs), 'arm')} x {counted(options.rounds, 'round')}"
    yield f"{size} of {options.turn_s:g} s, seed {options.seed}"
    yield f"{counted(len(plan.runs), 'turn')}, at least {duration(_estimate_s(plan))}; results in {plan.root}"
    yield from _refusals(arms.refused)
    yield from (f"warning: {warning}" for warning in arms.warnings)


def _first_spec(plan: CollectivePlan) -> CollectiveSpec:
    """All arms have the same sizes."""
    spec = next(iter(plan.arms.specs.values()))
    assert isinstance(spec, CollectiveSpec)
    return spec


def _sizes(spec: CollectiveSpec) -> str:
    sizes = shortened(map(size_text, spec.sizes), 6)
    model = f"the gradients of {spec.model}" if spec.model_gradients else ""
    return " and ".join(filter(None, (sizes, model))) + f", {spec.gradient_dtype}"


def _estimate_s(plan: CollectivePlan) -> float:
    """The turns may take longer: each size is measured once at least."""
    return len(plan.runs) * plan.options.turn_s + sum(map(start_s, plan.arms.specs.values()))


def _refusals(refused: Mapping[str, str]) -> Iterator[str]:
    for reason in dict.fromkeys(refused.values()):
        names = shortened(arm for arm, why in refused.items() if why == reason)
        yield f"refused: {names}: {reason}"


def show_plan(plan: CollectivePlan, json: bool) -> None:
    """Print the turns in their order."""
    if json:
        turns = [{"round": run.round, "arm": run.arm} for run in plan.runs]
        specs = {arm: spec.to_json() for arm, spec in plan.arms.specs.items()}
        summary = {"folder": str(plan.root), "estimate_s": _estimate_s(plan), "refused": plan.arms.refused}
        typer.echo(dumps({"format": 1, **summary, "arms": specs, "plan": turns}))
        return
    announce(plan, sys.stdout)
    for number, run in enumerate(plan.runs, start=1):
        spec = plan.arms.specs[run.arm]
        typer.echo(f"{number:3d}. round {run.round}  {run.arm}  ({counted(spec.replicas, 'rank')})")


def show(sweep: Sweep, stream: TextIO) -> None:
    """Show a table for each arm, then what packs do, what is wrong and what was not measured."""
    figures = figures_of(sweep)
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    for arm, group in groupby(figures, key=lambda figure: figure.line.arm):
        rows = list(group)
        first = rows[0].line
        where = f"{counted(first.ranks, 'rank')} on {counted(first.hosts, 'host')}"
        typer.echo(plain(f"\n{arm}: {first.op}, {where}, {counted(rows[0].rounds, 'round')}"), file=stream)
        typer.echo(plain("\n".join(lines_of_table(columns_for(rows, width), rows))), file=stream)
    for sentence in _remarks(figures, sweep):
        typer.echo(plain(f"\n{sentence}"), file=stream)


def _remarks(figures: Sequence[Figure], sweep: Sweep) -> Iterator[str]:
    yield from pack_sentences(sweep.lines)
    for figure in figures:
        if figure.wrong:
            where = f"{figure.line.arm} at {size_text(figure.line.bytes)}"
            yield f"wrong: {where}: {counted(figure.wrong, 'wrong element')}; do not train with it"
    yield from (f"not measured: {arm}: {reason}" for arm, reason in sweep.header.not_measured.items())
    yield from (f"skipped: {text}" for text in sweep.unreadable)
