"""Prints a bench before it runs: its suite, its turns, and what cannot run."""

import sys
from collections.abc import Iterator, Mapping
from typing import TextIO

import typer

from tfdist.bench.ceiling import exchange_of, network_limit
from tfdist.bench.session import Session
from tfdist.bench.suites.suite import QUICK
from tfdist.cli.show.rows import echo_wrapped
from tfdist.launch.doctor.preflight import Links, slowest
from tfdist.launch.json_files import dumps
from tfdist.launch.redact import redact_command
from tfdist.launch.text import counted, duration, shortened
from tfdist.models.spec import TrainingSpec

_MUCH_LONGER = 2
"""How many times as long as the suite QUICK a bench takes at least whose first line names that one."""
PLAN_INDENT = len("  1. ")
"""Blanks before what follows the first line of a turn."""


def announce(session: Session, stream: TextIO) -> None:
    """Show the suite, its purpose, the size of the bench, and the arms that cannot run."""
    suite, turns = session.bench.suite, len(session.to_run)
    again = len(session.done & set(session.to_run))
    size = f"{counted(len(suite.arms), 'arm')} x {counted(suite.rounds, 'round')} of {suite.turn_s:g} s"
    rest = f" left of {len(session.planned)}," if session.before else ""
    rest += f" and {again} repeated for comparison," if again else ""
    about = "about" if suite.until_accuracy is None and session.bench.looks == 1 else "at most about"
    time = f", {about} {duration(session.estimate_s)}" if turns else ""
    rough = _rough(session)
    first_time, time = (time, "") if rough else ("", time)
    scaling = "" if session.arms.commands else f", {suite.scaling} scaling"  # a program's batch is its own
    lines = [f"suite {suite.name}: {size}{scaling}, seed {suite.seed}{first_time}{rough}"]
    lines += [suite.description] if suite.description else []
    starts = counted(len(session.incarnations), "start")
    lines += [f"{counted(turns - again, 'turn')}{rest} in {starts} of the processes{time}; results in {session.root}"]
    lines += [*session.notes, *refusals(session.arms.refused)]
    lines += [f"warning: {warning}" for warning in session.warnings]
    echo_wrapped(lines, stream)


def _rough(session: Session) -> str:
    """`; a rough answer in 3 min: --suite quick` for a suite of tfdist's choice that takes much longer; else empty."""
    quick_s = session.quick_s
    longer = quick_s is not None and session.estimate_s > _MUCH_LONGER * quick_s
    return f"; a rough answer in {duration(quick_s)}: --suite {QUICK}" if quick_s and longer else ""


def refusals(refused: Mapping[str, str]) -> Iterator[str]:
    """A line for each reason with the arms that it holds for."""
    for reason in dict.fromkeys(refused.values()):
        yield f"refused: {shortened(arm for arm, why in refused.items() if why == reason)}: {reason}"


def limits(session: Session, links: Links) -> Iterator[str]:
    """The most images/s that the network allows, for each arm between processes, if its bandwidth was measured."""
    for arm, spec in session.arms.specs.items():
        if not isinstance(spec, TrainingSpec):
            continue
        machines = session.arms.machines[arm]
        exchange = exchange_of(spec, len(machines), session.sweep, slowest(links, list(machines)))
        if exchange is not None:
            size, bandwidth = f"{exchange.gradient_bytes / 1e6:.2f} MB of gradients", exchange.bandwidth
            yield (
                f"{arm}: the network allows at most {network_limit(spec, exchange):.1f} images/s: {size} take at least "
                f"{exchange.floor_s * 1e3:.1f} ms ({bandwidth.bytes_per_s / 1e9:.3g} GB/s, {bandwidth.source})"
            )


def show_plan(session: Session, json: bool) -> None:
    """Print the turns in their order."""
    runs = [(number, run) for number, each in enumerate(session.incarnations, start=1) for run in each]
    specs, refused = session.arms.specs, session.arms.refused
    if json:
        plan = [
            {"incarnation": number, "round": run.round, "arm": run.arm, "spec": specs[run.arm].to_json()}
            for number, run in runs
        ]
        summary = {"folder": str(session.root), "estimate_s": session.estimate_s, "refused": refused}
        typer.echo(dumps({"format": 2, **summary, "suite": session.bench.suite.to_json(), "plan": plan}))
        return
    announce(session, sys.stdout)
    lines = [
        f"{position:3d}. start {number}, round {run.round}  {run.arm}  ({_work(session, run.arm)})"
        for position, (number, run) in enumerate(runs, start=1)
    ]
    echo_wrapped(lines, sys.stdout, PLAN_INDENT)


def _work(session: Session, arm: str) -> str:
    spec = session.arms.specs[arm]
    if isinstance(spec, TrainingSpec):
        return f"{spec.strategy}, {spec.replicas} x batch {spec.batch_size}, {spec.image_size} px"
    return f"{spec.strategy}, {counted(spec.replicas, 'replica')}: {redact_command(session.arms.commands[arm])}"
