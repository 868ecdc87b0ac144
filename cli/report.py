"""`tfdist report`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tfdist.cli.options import option
from tfdist.launch.json_files import dumps

Folders = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Folders of benches or launches.", show_default=False)
]
Out = Annotated[Path | None, option("--out", "Where the report goes. Default: the first DIR that holds records.")]
Json = Annotated[bool, option("--json", "The report as JSON in stdout's last line; all else goes to stderr.")]


def report(folders: Folders, out: Out = None, json: Json = False) -> None:
    """Write report.md, report.csv, report.json and the plots from the records in DIR, without running anything.

    Several folders become one report; a column tells them apart. Those in which nothing was measured are left out.

    \b
    Examples:
      tfdist report bench_results/20260101T120000Z-cpu
      tfdist report runs/*                              what 'tfdist launch' measured, side by side
      tfdist report bench_results/a bench_results/b --out /tmp/a-and-b
    """
    from tfdist.bench.reading import holds_records
    from tfdist.bench.report.build import make_report, write_report
    from tfdist.cli.show_report import name_unreadable, show

    empty = [folder for folder in folders if folder.is_dir() and not holds_records(folder)]
    used = [folder for folder in folders if folder not in empty] or folders
    made = make_report(used)
    path = write_report(made, out or used[0])
    for folder in empty:
        typer.echo(f"tfdist: {folder} was left out: it holds no records", err=True)
    name_unreadable(made)
    show(made, sys.stderr if json else sys.stdout)
    typer.echo(f"\nreport: {path}", err=json)
    if json:
        typer.echo(dumps({**made.to_json(), "report": str(path)}))
