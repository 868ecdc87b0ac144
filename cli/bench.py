"""`tfdist bench`."""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from tfdist.cli.options import refuse_tf_config

if TYPE_CHECKING:
    from tfdist.bench.run import Progress
    from tfdist.bench.session import Session

WHAT, OUTPUT = "What is measured", "Output"


def bench(
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.toml", help="smoke, cpu, gpu, or a file of your own. Default: gpu if there is one, else cpu.",
            envvar="TFDIST_SUITE", rich_help_panel=WHAT, show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1, help="How often each arm is run (default: what the suite says; 3 or more for a verdict).",
            envvar="TFDIST_ROUNDS", rich_help_panel=WHAT, show_default=False,
        ),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Only the arms that match, as in 'mirrored/*'; may be given several times.",
            envvar="TFDIST_ARM", rich_help_panel=WHAT, show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Of the order of the runs within a round (default: what the suite says).",
            envvar="TFDIST_BENCH_SEED", rich_help_panel=WHAT, show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A new folder for the results (default: bench_results/TIME-SUITE).",
            envvar="TFDIST_OUT", rich_help_panel=OUTPUT, show_default=False,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Go on with the bench that broke off in this folder; what failed is run again.",
            envvar="TFDIST_RESUME", rich_help_panel=OUTPUT, show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and start nothing.", envvar="TFDIST_DRY_RUN", rich_help_panel=OUTPUT)
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="The report as JSON in the last line of stdout; all else goes to stderr.",
            envvar="TFDIST_JSON", rich_help_panel=OUTPUT,
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only where the report is.", envvar="TFDIST_QUIET", rich_help_panel=OUTPUT)
    ] = False,
) -> None:  # fmt: skip
    """Measure every arm of a suite, round by round in fresh processes, and write a report with plots.

    \b
    Examples:
      tfdist bench --suite smoke                      every strategy once, under 4 minutes on 2 cores
      tfdist bench --suite cpu --rounds 5
      tfdist bench --arm one-device --arm 'mirrored/*'
      tfdist bench --suite my.toml --dry-run           show the plan, start nothing
      tfdist bench --resume bench_results/20260101T120000Z-cpu

    Each run is saved when it ends: after Ctrl-C the report is made from what there is, and --resume goes on.
    The exit code is 0 if no arm failed and 1 if one did; an arm that this machine cannot run is a row with its reason.
    """
    from tfdist.bench.session import Asked, prepare
    from tfdist.launch.machine import local_machine
    from tfdist.models.presets import resolve

    refuse_tf_config()
    command = shlex.join(["tfdist", *sys.argv[1:]])
    asked = Asked(suite, rounds, tuple(arm or ()), out, resume, seed, command)
    machine = local_machine()
    session = prepare(asked, machine, resolve)
    stream = sys.stderr if as_json else sys.stdout
    if dry_run:
        show_plan(session, as_json)
        return
    raise typer.Exit(_measure(session, machine, stream, as_json, quiet))
