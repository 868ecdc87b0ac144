"""`tfdist doctor`: surveys the hosts, and prints the rows of all checks: one line each in a file, for grep."""

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.filesize import decimal

import tfdist
from tfdist.cli.options import Json, Port, host_options, option, seconds, timeout_options
from tfdist.cli.run_argument import RUNS_DIR, RunsDir
from tfdist.cli.show.output import agrees, columns_of, never_block, wait_for_reader
from tfdist.cli.show.rows import PlainConsole, aligned, wrapped
from tfdist.cli.show.steps import Steps, connecting
from tfdist.cli.strategies import keras_json, show_keras
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.options import TIMING, Seconds
from tfdist.launch.doctor.checks import CheckResult, Verdict, can_start, run_checks
from tfdist.launch.doctor.preflight import Link
from tfdist.launch.doctor.survey import Survey, survey_hosts
from tfdist.launch.environment import SHARED
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.json_files import dumps
from tfdist.launch.machine import assign_slots, check_burned, machines_of
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_value
from tfdist.launch.runs.bundle import DOCTOR, open_source, write_bundle
from tfdist.launch.runs.bundle_masks import Redactor, host_names
from tfdist.launch.runs.state import find_run
from tfdist.launch.schedulers.table import BATCH_SYSTEMS
from tfdist.launch.text import counted, plain, shortened
from tfdist.strategies.catalog import CATALOG

COLORS = {Verdict.OK: typer.colors.GREEN, Verdict.WARNING: typer.colors.YELLOW, Verdict.FAILED: typer.colors.RED}
VERDICT_WIDTH = max(len(verdict) for verdict in Verdict)
MOST_HOSTS = 3
"""Hosts in one row; more are counted."""
MIN_TEXT_WIDTH = 40
"""Columns below which the text starts on the line below its heading."""


def show(rows: Sequence[CheckResult]) -> None:
    """Print all rows, wrapped on a terminal, else in one line each."""
    color = False if "NO_COLOR" in os.environ else None
    for line in row_lines(merge_hosts(rows), columns_of(sys.stdout)):
        typer.echo(line, color=color)


def merge_hosts(rows: Sequence[CheckResult]) -> list[CheckResult]:
    """One row for all hosts with the same result."""
    hosts: dict[CheckResult, list[str]] = {}
    for row in rows:
        hosts.setdefault(replace(row, host=""), []).append(row.host)
    return [replace(row, host=shortened(names, MOST_HOSTS)) for row, names in hosts.items()]


def row_lines(rows: Sequence[CheckResult], width: int | None) -> list[str]:
    """Each row: verdict, check, host and text, then the fix, wrapped to `width` columns; None: one line each."""
    check_width = max((len(row.check) for row in rows), default=0)
    host_width = max((len(row.host) for row in rows), default=0)
    heads = [f"{row.check:{check_width}}  {row.host:{host_width}}" for row in rows]
    return [line for row, head in zip(rows, heads, strict=True) for line in _lines(row, head, width)]


def _lines(row: CheckResult, head: str, width: int | None) -> list[str]:
    verdict = typer.style(f"{row.verdict:{VERDICT_WIDTH}}", fg=COLORS[row.verdict])
    texts = [row.text, f"-> {row.fix}"] if row.fix else [row.text]
    if width is None:
        return [f"{verdict}  {head}  {' '.join(texts)}".replace("\n", " ")]
    indent = VERDICT_WIDTH + len(head) + 4
    if width - indent < MIN_TEXT_WIDTH:
        first, *rest = _wrapped([head], width, VERDICT_WIDTH + 2)
        return [f"{verdict}  {first.strip()}", *rest, *_wrapped(texts, width, 2)]
    first, *rest = _wrapped(texts, width, indent)
    return [f"{verdict}  {head}  {first.strip()}", *rest]


def _wrapped(texts: Sequence[str], width: int, indent: int) -> list[str]:
    lines = [" " * indent + " ".join(text.split()) for text in texts]
    return [part for line in lines for part in wrapped(line, max(width - 1, indent + 20), indent)]


def burned_rows(
    hellos: Mapping[Host, Mapping[str, Any]], per_host: int | None, seconds: float, on_step: Callable[[str], None]
) -> tuple[CheckResult, ...]:
    """Rows of how fast the hosts compute and exchange, by the descriptions of their agents."""
    from tfdist.bench.burn import burn, rows_of  # it imports what a bench needs

    return tuple(rows_of(burn(assign_slots(machines_of(hellos), per_host, 1), seconds, on_step)))


def check_speed(
    hellos: Mapping[Host, Mapping[str, Any]], per_host: int | None, seconds: float, out: TextIO, *, quiet: bool
) -> None:
    """Let hosts compute and exchange before a launch, and show how fast they are.

    Raises:
        TfdistError: one is slow, or a link.
    """
    with Steps(sys.stderr, quiet=quiet) as steps:
        rows = burned_rows(hellos, per_host, seconds, steps.show)
    slow = [row for row in rows if row.verdict is not Verdict.OK]
    if slow or not quiet:
        typer.echo("\n".join(row_lines(rows, None)), file=out)
    if slow:
        names = shortened(dict.fromkeys(row.host for row in slow))
        raise TfdistError(
            f"--burn: {names} slow, as the rows above say; repair or --exclude, or omit --burn", ExitCode.HOST_LOST
        )


_VARIABLES = (*SHARED, "CUDA_", "OMP_", *(each for system in BATCH_SYSTEMS for each in system.PREFIXES), "TFDIST_")
"""Prefixes of the variables in a bundle."""


def bundled_folder(text: str, runs_dir: Path) -> Path:
    """The folder of the run or the bench.

    Raises:
        TfdistError: there is no such run.
    """
    from tfdist.bench.reading import holds_records  # it imports what a bench needs

    is_bench = holds_records(Path(text))
    return (Path(text) if is_bench else find_run(text, runs_dir, f"--bundle {text}").path).resolve()


def save_bundle(folder: Path, rows: Sequence[CheckResult], survey: Survey, *, yes: bool, json: bool) -> None:
    """List what the archive will hold, ask unless `yes`, and write it.

    Raises:
        TfdistError: there is no terminal to ask on.
        OSError: it cannot be written.
    """
    checks = [plain(line) for line in row_lines(merge_hosts(rows), None)]
    versions = f"tfdist {tfdist.__version__}, Python {platform.python_version()}, {platform.platform()}"
    given = [f"{name}={redact_value(name, os.environ[name])}" for name in os.environ if name.startswith(_VARIABLES)]
    packages = sorted({f"{each.name}=={each.version}" for each in metadata.distributions()})
    text = "\n".join([*checks, "", versions, "", *sorted(given), "", *packages, ""])
    with open_source(folder) as source:
        sizes = {DOCTOR: len(text), **source.files()}
        listing = [{"file": name, "size": decimal(size)} for name, size in sizes.items()]
        typer.echo("\n".join(aligned(listing, columns_of(sys.stderr if json else sys.stdout))), err=json)
        of_all = f"{counted(len(sizes), 'file')} ({decimal(sum(sizes.values()))})"
        refusal = "--bundle: there is no terminal to ask on; add --yes to write these files"
        if not yes and not agrees(f"write these {of_all}, redacted and compressed?", refusal, err=json):
            typer.echo("nothing was written", err=json)
            return
        examined = [host_names(host.name, survey.hellos.get(host), host.address) for host in survey.hosts]
        path = write_bundle(source, sizes, text, Redactor([*source.hosts(sizes), *examined], os.environ))
    size = path.stat().st_size
    typer.echo(f"wrote {path} ({decimal(size)}); look into it before you publish it", err=json)
    if json:
        typer.echo(dumps({"format": 1, "bundle": str(path), "bytes": size}))


def _summary(rows: Sequence[CheckResult]) -> str:
    failed = [f"{row.check} ({row.host})" for row in rows if row.verdict is Verdict.FAILED]
    if failed:
        return f"A job could not start. Failed: {shortened(failed, 6)}."
    warnings = sum(row.verdict is Verdict.WARNING for row in rows)
    return f"A job could start{f'; warnings: {warnings}' if warnings else ''}."


@host_options()
@timeout_options(without=("grace_period", "launcher_timeout"))
def doctor(
    selection: HostSelection,
    policy: Policy,
    port: Port = None,
    burn: Annotated[
        Seconds | None,
        seconds("--burn", "Let the hosts compute and exchange for this time, and name slow ones.", TIMING),
    ] = None,
    bundle: Annotated[str | None, option("--bundle", "Pack this run, or folder of a bench, for a bug report.")] = None,
    runs_dir: RunsDir = RUNS_DIR,
    yes: Annotated[bool, option("--yes", "Do not ask before --bundle writes the archive.", short=("-y",))] = False,
    json: Json = False,
    verbose: Annotated[bool, option("--verbose", "Also which Keras works with which strategy.", short=("-v",))] = False,
) -> None:
    """Check whether a job could start. Shows how to fix what is wrong, on this machine or on many hosts.

    \b
    Examples:
      tfdist doctor
      tfdist doctor --hosts h1,h2
      tfdist doctor --hostfile hosts.txt --port 12345
      tfdist doctor --hosts h1,h2,h3 --burn 10s
      tfdist doctor --hosts h1,h2 --json
      tfdist doctor --bundle last

    Checks every host and measures the links between them: all links of up to 4 hosts, else from each to the next.
    Changes nothing on the hosts. --burn compares them while they work: a short training on all of them, then an
    all-reduce between two at a time.

    --bundle lists the files, asks, and writes tfdist-NAME.tar.gz: logs (the last MiB of each), events, records, outcome
    and plan of the run, and what doctor finds now. Secrets, the home folder and the user's name are masked, and names
    and addresses of hosts become HOST-n; look into it before you publish it.

    The exit code is 0 if a job could start, else 69; with --bundle 0.
    """
    if bundle is None and yes:
        raise TfdistError("--yes: has no effect without --bundle; omit it")
    folder = None if bundle is None else bundled_folder(bundle, runs_dir)
    never_block()
    survey, rows = _examine(selection, policy, port, burn)
    if folder is not None:
        save_bundle(folder, rows, survey, yes=yes, json=json)
    elif json:
        typer.echo(dumps(_to_json(survey, rows)))
    else:
        show(rows)
        if verbose or not can_start(rows):
            typer.echo("\nWhich Keras works with which strategy:")
            show_keras(PlainConsole(sys.stdout))
        typer.echo(f"\n{_summary(rows)}")
    wait_for_reader()
    raise typer.Exit(ExitCode.SUCCESS if folder is not None or can_start(rows) else ExitCode.HOST_LOST)


def _examine(
    selection: HostSelection, policy: Policy, port: int | None, burn_s: float | None
) -> tuple[Survey, tuple[CheckResult, ...]]:
    """Survey the hosts and check what was found; if a job could start there, compare them at work for `burn_s`.

    Raises:
        TfdistError: an option is wrong, or interrupted.
    """
    hosts = selection.hosts or (LOCAL,)
    with Steps(sys.stderr) as steps:
        if burn_s is not None:
            check_burned(hosts)
        progress = connecting(hosts, steps)
        survey = survey_hosts(hosts, str(Path.cwd()), port, selection.per_host, policy, steps.show, progress)
        rows = run_checks(survey)
        if burn_s is not None and can_start(rows):
            rows = (*rows, *burned_rows(survey.hellos, selection.per_host, burn_s, steps.show))
    return survey, rows


def _to_json(survey: Survey, rows: Sequence[CheckResult]) -> dict[str, Any]:
    links = [
        {"from": source.name, "to": target.name, **asdict(link)}
        for (source, target), link in survey.links.items()
        if isinstance(link, Link)
    ]
    keras = {str(name): keras_json(name) for name in CATALOG}
    found = {"can_start": can_start(rows), "rows": [asdict(row) for row in rows], "links": links, "keras": keras}
    return {"format": 1, **found}
