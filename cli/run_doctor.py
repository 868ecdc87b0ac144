"""What `tfdist doctor` does with its options: survey the hosts, and print the rows of all checks."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from tfdist.cli.host_selection import HostSelection
from tfdist.cli.output import never_block, wait_for_reader
from tfdist.cli.show_checks import show
from tfdist.cli.steps import Steps, connecting
from tfdist.cli.strategies import keras_json, show_keras
from tfdist.launch.doctor.checks import run_checks
from tfdist.launch.doctor.links import Link
from tfdist.launch.doctor.results import CheckResult, Survey, Verdict, can_start
from tfdist.launch.doctor.survey import HostRequest, survey_hosts
from tfdist.launch.errors import ExitCode
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.json_files import dumps
from tfdist.launch.policy import Policy
from tfdist.launch.text import shortened
from tfdist.strategies.catalog import CATALOG


def run_doctor(selection: HostSelection, policy: Policy, port: int | None, json: bool) -> int:
    """Check the hosts and print the result; returns the exit code.

    Raises:
        TfdistError: as `survey_hosts`.
    """
    request = HostRequest(str(Path.cwd()), port, selection.per_host)
    never_block()
    with Steps(sys.stderr) as steps:
        hosts = selection.hosts or (LOCAL,)
        survey = survey_hosts(hosts, request, policy, steps.show, connecting(hosts, steps))
    rows = run_checks(survey)
    if json:
        typer.echo(dumps(_to_json(rows, survey), indent=1))
    else:
        _show(rows, keras=not selection.hosts)
    wait_for_reader()
    return ExitCode.SUCCESS if can_start(rows) else ExitCode.HOST_LOST


def _show(rows: Sequence[CheckResult], keras: bool) -> None:
    show(rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    if keras:
        from rich.console import Console

        typer.echo("\nWhich Keras works with which strategy:")
        show_keras(Console(highlight=False))
    failed = [f"{row.check} ({row.host})" for row in rows if row.verdict is Verdict.FAILED]
    warnings = sum(row.verdict is Verdict.WARNING for row in rows)
    if failed:
        typer.echo(f"\nA job could not start. Failed: {shortened(failed, 6)}.")
    else:
        typer.echo(f"\nA job could start{f'; warnings: {warnings}' if warnings else ''}.")


def _to_json(rows: Sequence[CheckResult], survey: Survey) -> dict[str, Any]:
    links = [
        {"from": source.name, "to": target.name, **asdict(link)}
        for (source, target), link in survey.links.items()
        if isinstance(link, Link)
    ]
    return {
        "can_start": can_start(rows),
        "rows": [asdict(row) for row in rows],
        "links": links,
        "keras": {str(name): keras_json(name) for name in CATALOG},
    }
