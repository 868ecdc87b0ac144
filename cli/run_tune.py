"""Runs the search that the options of `tfdist tune` describe, and prints what it found."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

import typer

from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import progress_on
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import Session, prepare
from tfdist.bench.tune import STAGE_ROUNDS, Tuning, launch_words, search_arms, search_s, stages, tune
from tfdist.cli.bench import report_on
from tfdist.cli.show.bench import refusals
from tfdist.cli.show.steps import connected
from tfdist.jobs.host_selection import HostSelection
from tfdist.launch.json_files import dumps
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_command
from tfdist.launch.text import counted, duration


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
        arms = search_arms(session)
    if not quiet or dry_run:
        _announce(session, arms, stream)
    if dry_run:
        if json:
            typer.echo(dumps(_plan_to_json(session, arms)))
        return 0
    with progress_on(stream, quiet) as progress:
        tuning = tune(session, RunnerHooks(progress, policy=policy))
    if tuning.interrupted is not None:
        report_on(session, stream, quiet)
    if json:
        typer.echo(dumps(_to_json(tuning, session, selection.options)))
    else:
        typer.echo("\n".join(_texts(tuning, session, selection.options)))
    return 0 if tuning.interrupted is None else 128 + tuning.interrupted


def _announce(session: Session, arms: tuple[str, ...], stream: TextIO) -> None:
    suite, (default, *candidates) = session.bench.suite, arms
    lines = [f"suite {suite.name}: {counted(len(candidates), 'candidate')} and the default, {default}"]
    lines += [f"candidates: {', '.join(candidates)}"]
    *earlier, last = (f"{counted(number, 'candidate')}" for number in stages(len(candidates)))
    lines += [f"{number}: {counted(STAGE_ROUNDS, 'round')} of {suite.turn_s:g} s" for number in earlier]
    lines += [f"{last}: {counted(suite.rounds, 'round')} of {suite.turn_s:g} s"]
    lines += [f"about {duration(search_s(session))}; results in {session.root}"]
    lines += [*session.notes, *(f"refused: {text}" for text in refusals(session.arms.refused))]
    lines += [f"warning: {warning}" for warning in session.arms.warnings]
    typer.echo("\n".join(lines), file=stream)


def _texts(tuning: Tuning, session: Session, hosts: Sequence[str]) -> list[str]:
    folder = f"all turns are in {session.root}: see 'tfdist report {shlex.quote(str(session.root))}'"
    if tuning.interrupted is not None:
        return ["interrupted before the options were compared: these figures name no best ones", folder]
    if not tuning.gain:
        return [f"no measurable gain over the defaults ({tuning.default}){_ratio(tuning)}", folder]
    return [
        f"{tuning.best} is faster than {tuning.default}{_ratio(tuning)}:",
        f"  {_command(tuning, session, hosts)}",
        folder,
    ]


def _ratio(tuning: Tuning) -> str:
    """`: 1.12 times (95 % interval 1.05 to 1.20)`; empty without a figure."""
    comparison = tuning.comparison
    if comparison is None:
        return ""
    interval = comparison.interval
    limits = "" if interval is None else f" ({interval.level:.0%} interval {interval.low:.2f} to {interval.high:.2f})"
    return f"; {tuning.best}: {comparison.ratio:.2f} times{limits}"


def _command(tuning: Tuning, session: Session, hosts: Sequence[str]) -> str:
    suite = session.bench.suite
    best = next(arm for arm in suite.arms if arm.name == tuning.best)
    return redact_command(launch_words(best, suite.preset, session.arms.specs[best.name], hosts))


def _plan_to_json(session: Session, arms: tuple[str, ...]) -> dict[str, Any]:
    default, *candidates = arms
    return {
        "format": 1,
        "default": default,
        "candidates": candidates,
        "stages": list(stages(len(candidates))),
        "refused": session.arms.refused,
        "estimate_s": search_s(session),
        "folder": str(session.root),
    }


def _to_json(tuning: Tuning, session: Session, hosts: Sequence[str]) -> dict[str, Any]:
    return {
        "format": 1,
        "strategy": session.bench.suite.arms[0].choices["strategy"],
        **asdict(tuning),
        "gain": tuning.gain,
        "command": _command(tuning, session, hosts) if tuning.gain else "",
        "folder": str(session.root),
    }
