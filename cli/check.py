"""`tfdist check`: a short run of a program under each strategy, with a line for each."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer

from tfdist.bench.check import CHECKED, Checker, CheckPlan, plan_check
from tfdist.cli.copied import Copy, program_copy
from tfdist.cli.doctor import show
from tfdist.cli.options import Json, option, refuse_tf_config, seconds
from tfdist.cli.run_argument import argument
from tfdist.cli.show.output import finish
from tfdist.cli.show.steps import Steps
from tfdist.cli.strategies import availability
from tfdist.jobs.options import WHAT, Seconds
from tfdist.launch.agent_program.system import temporary_root
from tfdist.launch.doctor.checks import CheckResult, Verdict, can_start
from tfdist.launch.errors import SIGNALS, TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.machine import local_machines
from tfdist.launch.text import did_you_mean, listed
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName

TIMEOUT_S = 60.0
VARIABLES = "TFDIST_CHECK_STRATEGY", "TFDIST_CHECK_TIMEOUT"
"""Those without CHECK are for launch."""


def check(
    command: Annotated[list[str] | None, argument("-- COMMAND", "Your program, or only its .py file.")] = None,
    strategy: Annotated[
        list[str] | None,
        option("--strategy", f"Only this one, of {', '.join(CHECKED)}. Repeatable.", WHAT, variable=VARIABLES[0]),
    ] = None,
    timeout: Annotated[
        Seconds | None,
        seconds("--timeout", f"Limit for the first steps of a strategy. Default: {TIMEOUT_S:g}s.", WHAT, VARIABLES[1]),
    ] = None,
    copy: Copy = None,
    json: Json = False,
) -> None:
    """Run your program for a few steps under each strategy. Says which work, and what to change in it for the others.

    \b
    Examples:
      tfdist check train.py
      tfdist check -- python train.py --batch-size 32
      tfdist check --strategy multiworker --timeout 5m train.py

    Two devices or workers are used on this machine, and strategies run at the same time where the cores allow.
    The program runs in this folder, and is stopped after its first steps.

    The exit code is 1 if it fails under a strategy, 130 after Ctrl-C, else 0.
    """
    refuse_tf_config()
    words = ["python", *command] if command and command[0].endswith(".py") else command
    if not words:
        raise TfdistError("no program: name one, as in 'tfdist check train.py'")
    plan = plan_check(words, names(strategy or []), local_machines(), program_copy(copy, own=True, quiet=json))
    run = partial(_check, plan, TIMEOUT_S if timeout is None else timeout, json=json)
    finish(run, until_read=json)


def names(given: Sequence[str]) -> list[StrategyName]:
    """The strategies of these names; without any, those that this machine can run.

    Raises:
        TfdistError: there is no such strategy.
    """
    for name in given:
        if name not in CHECKED:
            raise TfdistError(f"--strategy {name}: {did_you_mean(name, map(str, CHECKED))}")
    available = [name for name in CHECKED if availability(CATALOG[name]) == "yes"]
    return [name for name in CHECKED if name in (given or available)]


@dataclass(frozen=True)
class CheckReport:
    """What a check has found."""

    rows: tuple[CheckResult, ...]
    interrupted: int
    """Number of the signal that ended it; 0: none."""
    folder: Path
    """The folder of the logs, which are kept if something failed."""

    @property
    def code(self) -> int:
        """The exit code."""
        return SIGNALS + self.interrupted if self.interrupted else int(not can_start(self.rows))


def check_rows(plan: CheckPlan, timeout_s: float, *, quiet: bool) -> CheckReport:
    """Run the programs of a plan; `timeout_s`: until the first steps are trained. `quiet`: show no progress."""
    rows = list[CheckResult]()
    folder = Path(mkdtemp(prefix="tfdist-check-", dir=temporary_root()))
    checker = Checker(plan, folder, timeout_s)
    with Steps(sys.stderr, quiet=quiet) as steps:
        steps.show("starting")
        for row in checker.rows(lambda running: steps.show(f"checking {listed(running)}")):
            rows.append(row)
    rows += plan.refused()
    if plan.problem:
        text, _, fix = plan.problem.partition(": call ")
        rows.append(CheckResult("bench", "", Verdict.WARNING, text, f"call {fix}"))
    report = CheckReport(tuple(rows), checker.interrupted, folder)
    if report.code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def _check(plan: CheckPlan, timeout_s: float, *, json: bool) -> int:
    """Check, and print a row for each strategy; returns the exit code."""
    report = check_rows(plan, timeout_s, quiet=json)
    if json:
        rows = [asdict(row) for row in report.rows]
        typer.echo(dumps({"format": 1, "exit_code": report.code, "checks": rows}))
    else:
        show(report.rows)
    if report.code:
        typer.echo(f"logs: {report.folder}", err=True)
    return report.code
