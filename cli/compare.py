"""`tfdist compare`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tfdist.bench.compare.folders import compare_folders
from tfdist.bench.compare.gate import parse_share
from tfdist.cli.options import Json, option
from tfdist.cli.show_compare import show
from tfdist.launch.json_files import dumps

Base = Annotated[Path, typer.Argument(metavar="BASE", help="Folder of the earlier bench.", show_default=False)]
New = Annotated[Path, typer.Argument(metavar="NEW", help="Folder of the later bench.", show_default=False)]
FailSlower = Annotated[
    str | None,
    option("--fail-slower", "Exit with code 1 if an arm is surely slower by more than this share: 5% or 0.05."),
]
Anchor = Annotated[
    str | None,
    option(
        "--anchor",
        "The arm whose speed stands for the machine's, or none to compare images/s. Default: the one-device arm.",
    ),
]


Out = Annotated[
    Path | None, option("--out", "Write a report into this folder: report.html with a plot, report.md, compare.csv.")
]


def compare(
    base: Base,
    new: New,
    fail_slower: FailSlower = None,
    anchor: Anchor = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Show which arms became faster or slower between two benches. With intervals; nothing is run.

    Arms are matched by name. One whose work differs (model, batch, data, devices) is listed, not compared. Turns of two
    benches did not alternate, so a change of the machine's speed would look like one of every arm: arms are compared by
    their speed-up over the one-device arm, if both benches have it.

    Exit codes: 0; 1 if an arm is slower than --fail-slower allows; 2 for wrong input.

    \b
    Examples:
      tfdist compare bench_results/before bench_results/after
      tfdist compare before after --fail-slower 5%          # in a CI job
      tfdist compare before after --anchor mirrored/auto
      tfdist compare before after --out comparison
      tfdist compare before after --json
    """
    from tfdist.bench.compare.page import write_comparison

    bound = None if fail_slower is None else parse_share(fail_slower, "--fail-slower")
    compared = compare_folders(base, new, anchor)
    show(compared, bound, sys.stderr if json else sys.stdout)
    if out:
        typer.echo(f"\nreport: {write_comparison(compared, bound, out)}", err=json)
    if json:
        typer.echo(dumps(compared.to_json(bound)))
    raise typer.Exit(1 if bound is not None and compared.too_slow(bound) else 0)
