"""`tfdist doctor`."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfdist.cli.host_options import host_options
from tfdist.cli.options import Port, option
from tfdist.cli.show_checks import show
from tfdist.cli.steps import Steps
from tfdist.cli.strategies import keras_json, show_keras
from tfdist.launch.doctor.links import Link
from tfdist.launch.doctor.results import CheckResult, Survey, Verdict, can_start
from tfdist.launch.errors import ExitCode
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.json_files import dumps
from tfdist.launch.text import shortened
from tfdist.strategies.catalog import CATALOG

if TYPE_CHECKING:
    from tfdist.cli.host_selection import HostSelection

Json = Annotated[bool, option("--json", "Print the rows as JSON.")]


@host_options()
def doctor(selection: "HostSelection", port: Port = None, json: Json = False) -> None:
    """Check whether a job could start. Shows how to fix what is wrong, on this machine or on many hosts.

    \b
    Examples:
      tfdist doctor
      tfdist doctor --hosts h1,h2
      tfdist doctor --hostfile hosts.txt --port 12345
      tfdist doctor --hosts h1,h2 --json

    Checks every host and measures the links between them: all links of up to 4 hosts, else from each to the next.
    Changes nothing on the hosts.

    The exit code is 0 if a job could start, else 69.
    """
    from tfdist.launch.doctor.checks import run_checks
    from tfdist.launch.doctor.survey import HostRequest, survey_hosts

    request = HostRequest(str(Path.cwd()), port, selection.per_host)
    with Steps(sys.stderr) as steps:
        survey = survey_hosts(selection.hosts or (LOCAL,), request, steps.show)
    rows = run_checks(survey)
    if json:
        typer.echo(dumps(_to_json(rows, survey), indent=1))
    else:
        _show(rows, keras=not selection.hosts)
    raise typer.Exit(ExitCode.SUCCESS if can_start(rows) else ExitCode.HOST_LOST)


def _show(rows: Sequence[CheckResult], keras: bool) -> None:
    show(rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    if keras:
        from rich.console import Console

        typer.echo("\nWhich Keras works with which strategy:")
        show_keras(Console(highlight=False))
    failed = [f"{row.check} ({row.host})" for row in rows if row.verdict is Verdict.FAILED]
    warnings = sum(row.verdict is Verdict.WARNING for row in rows)
    if failed:
        typer.echo(f"\nNo job could start: {shortened(failed, 6)}.")
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
