"""`tfdist report`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders of benches or launches.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where the report goes (default: the first DIR).", envvar="TFDIST_OUT", show_default=False),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The report as JSON in the last line of stdout.", envvar="TFDIST_JSON")
    ] = False,
) -> None:
    """Write report.md, report.csv, report.json and the plots from the records in DIR, without running anything.

    Several folders become one report; a column tells them apart.

    \b
    Examples:
      tfdist report bench_results/20260101T120000Z-cpu
      tfdist report runs/*                              what 'tfdist launch' measured, side by side
      tfdist report bench_results/a bench_results/b --out /tmp/a-and-b
    """
    from tfdist.bench.report import make_report, write_report
    from tfdist.cli.results import show

    made = make_report(folders)
    path = write_report(made, out or folders[0])
    show(made, sys.stderr if as_json else sys.stdout)
    typer.echo(f"\nreport: {path}", err=as_json)
    if as_json:
        typer.echo(json.dumps({**made.to_json(), "report": str(path)}))
