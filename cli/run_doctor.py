"""What `tfdist doctor` does once its options are read."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from tfdist.cli import show_checks as verdicts
from tfdist.cli.host_selection import HostSelection
from tfdist.cli.steps import Steps
from tfdist.cli.strategies import keras_json, show_keras
from tfdist.launch.doctor.checks import examine
from tfdist.launch.doctor.links import Link
from tfdist.launch.doctor.results import CheckResult, Survey, Verdict, can_start
from tfdist.launch.doctor.survey import HostRequest, survey
from tfdist.launch.errors import ExitCode
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.json_files import dumps
from tfdist.strategies.catalog import CATALOG


def examine_hosts(selection: HostSelection, port: int | None, json: bool) -> int:
    """Look at every host, show what was found, and return the exit code.

    Raises:
        TfdistError: what connects is not there, or the user has had enough.
    """
    wish = HostRequest(str(Path.cwd()), port, selection.per_host)
    with Steps(sys.stderr) as steps:
        findings = survey(selection.hosts or (LOCAL,), wish, steps.show)
    rows = examine(findings)
    if json:
        typer.echo(dumps(as_json(rows, findings), indent=1))
    else:
        show(rows, keras=not selection.hosts)
    return int(ExitCode.SUCCESS if can_start(rows) else ExitCode.HOST_LOST)


def show(rows: Sequence[CheckResult], keras: bool) -> None:
    """For a person: the rows, for this machine alone the Keras table, and the upshot."""
    verdicts.show(rows, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    if keras:
        from rich.console import Console

        typer.echo("\nWhich Keras trains under which strategy:")
        show_keras(Console(highlight=False))
    typer.echo(f"\n{upshot(rows)}")


def upshot(rows: Sequence[CheckResult]) -> str:
    """The last line."""
    bad = [f"{row.check} ({row.host})" for row in rows if row.verdict is Verdict.FAILED]
    if bad:
        return f"No job could start: {', '.join(bad[:6])}{f' and {len(bad) - 6} more' if len(bad) > 6 else ''}."
    warnings = sum(row.verdict is Verdict.WARNING for row in rows)
    return f"A job could start{f'; warnings: {warnings}' if warnings else ''}."


def as_json(rows: Sequence[CheckResult], findings: Survey) -> dict[str, Any]:
    """All of it as plain JSON values."""
    links = [
        {"from": one.name, "to": other.name, "rtt_s": link.rtt_s, "bytes_per_s": link.bytes_per_s}
        for (one, other), link in findings.links.items()
        if isinstance(link, Link)
    ]
    told = [
        {"check": row.check, "host": row.host, "verdict": str(row.verdict), "text": row.text, "mend": row.mend}
        for row in rows
    ]
    return {
        "can_start": can_start(rows),
        "rows": told,
        "links": links,
        "keras": {str(name): keras_json(name) for name in CATALOG},
    }
