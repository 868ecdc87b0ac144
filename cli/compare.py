"""`tfdist compare`: two folders, or arms over time in more."""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from tfdist.bench.compare.folders import ComparedFolders, compare_folders
from tfdist.bench.compare.gate import is_too_slow, parse_share
from tfdist.bench.compare.history import read_history
from tfdist.bench.compare.history_section import history_section
from tfdist.bench.compare.page import gate, one_sided, sentences, write_comparison
from tfdist.bench.export import ExportFormat, exported, figures_of_changes
from tfdist.bench.report.section import Page
from tfdist.bench.report.sections.ratios import ratio_table
from tfdist.bench.report.write import write_page
from tfdist.cli.options import Json, gather
from tfdist.cli.result_folders import Export, check_out, export_form, list_skipped, with_records
from tfdist.cli.run_argument import argument, option_rows
from tfdist.cli.show.output import finish
from tfdist.cli.show.rows import PlainConsole, show_rows
from tfdist.jobs.options import OUTPUT
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import dumps
from tfdist.strategies.options import option_text


def show_history(folders: Sequence[Path], arms: Sequence[str], out: Path | None, *, json: bool) -> ExitCode:
    """Show arms over many benches and their changes; returns the exit code. Folders without records are skipped.

    Args:
        folders: in any order.
        arms: patterns of names; empty: all.
        out: a folder for a report; None: no report.
        json: print JSON in the last line of stdout.
    """
    check_out(out, folders)
    used, empty = with_records(folders)
    found = read_history(used, arms)
    section = history_section(found)
    stream = sys.stderr if json else sys.stdout
    console = PlainConsole(stream)
    list_skipped(empty, found.skipped)
    show_rows(console, section.tables[0].rows, ("arm", "started", "images/s", "examples/s", "verdict"))
    for text in section.answer:
        console.print(text)
    if out:
        page = write_page(Page("History", section.answer, (section,), commands=found.commands), out)
        typer.echo(f"\nreport: {page}", err=json)
    if json:
        typer.echo(dumps(found.to_json()))
    return ExitCode.SUCCESS if found.decided else ExitCode.NOTHING_COMPARED


NARROW = ("arm", "ratio", "interval", "verdict")
"""The columns for a terminal that has no room for all."""
NARROWEST = ("arm", "ratio", "verdict")
_SLOW = "slower than the bound"


def show(compared: ComparedFolders, bound: float | None, stream: TextIO) -> None:
    """Show the answer, the differences of environment, the table, and arms of one side."""
    console = PlainConsole(stream)
    if answer := gate(compared, bound)[1]:
        console.print(answer)
    console.print(f"base: {compared.base}\nnew:  {compared.new}")
    facts = [f"  {each.fact}: {_short(each.base)} -> {_short(each.new)}" for each in compared.environment]
    console.print("\n".join(["environment:", *facts] if facts else ["environment: no difference"]))
    rows = ratio_table("compare", "", compared.changes, compared.anchor).rows
    for row, change in zip(rows, compared.changes, strict=True):
        if bound is not None and is_too_slow(change.comparison, bound):
            row["verdict"] = row["verdict"].replace("slower", _SLOW, 1)
    show_rows(console, rows, NARROW, NARROWEST, red=lambda row: row["verdict"].startswith(_SLOW))
    for text in (*sentences(compared), *one_sided(compared)):
        console.print(text)


def _short(value: str) -> str:
    """A git commit as git shows it."""
    return value[:10] if re.fullmatch("[0-9a-f]{40}", value) else value


OPTIONS = option_rows(
    OUTPUT,
    fail_slower=(str, "Exit with code 1 if an arm's whole interval is slower by more than this: 5% or 0.05."),
    fail_inconclusive=(bool, "With --fail-slower: exit with code 4 if an arm may be slower than that."),
    same_work=(bool, "Your own program does the same work in both, although its command lines differ."),
    baseline=(str, "The arm that speed-ups are relative to, or none to compare images/s. Default: one-device."),
    arm=(list[str], "With more than two benches: only the arms that match, as 'mirrored/*'. Repeatable."),
    out=(Path, "Write a report into this folder: report.html with a plot, report.md, compare.csv."),
)


@gather("given", OPTIONS)
def compare(
    folders: Annotated[list[Path], argument("DIR...", "Two benches, the earlier one first, or more.")],
    *,
    given: Mapping[str, Any],
    json: Json = False,
    export: Export = None,
) -> None:
    """Show which arms became faster or slower between two benches. Or over many, by date and commit; nothing is run.

    Arms are matched by name. One whose work differs (model, batch, data, devices) is listed, not compared. Turns of two
    benches did not alternate, so a change of the machine's speed would look like one of every arm: arms are compared by
    their speed-up over the one-device arm, if both benches have it.

    Of more than two folders, those without records are skipped, so that a whole folder of results can be given.

    Exit codes: 0; 1 if an arm is slower than --fail-slower allows; 2 for wrong input; 3 if nothing was compared; 4 with
    --fail-inconclusive if an arm may be slower than --fail-slower allows.

    \b
    Examples:
      tfdist compare bench_results/before bench_results/after
      tfdist compare before after --fail-slower 5%          # in a CI job
      tfdist compare before after --baseline mirrored/auto
      tfdist compare before after --out comparison
      tfdist compare before after --export bencher          # for 'bencher run'
      tfdist compare bench_results/*-cpu --arm multiworker/ring --out history
    """
    if len(folders) < 2:
        raise TfdistError(f"{folders[0]}: only one folder; give two benches, or more for their history")
    slower = given["fail_slower"]
    arms = given["arm"] or ()
    out = given["out"]
    bound = None if slower is None else parse_share(slower, "--fail-slower")
    if given["fail_inconclusive"] and bound is None:
        raise TfdistError("--fail-inconclusive: give the bound, too, as --fail-slower 5%")
    if len(folders) > 2:
        stray = [option_text(name, given[name]) for name in ("fail_slower", "baseline", "same_work") if given[name]]
        if export:
            stray.append(f"--export {export}")
        if stray:
            raise TfdistError(f"{stray[0]}: compares two folders, and {len(folders)} were given; omit it, or give two")
        finish(partial(show_history, folders, arms, out, json=json), until_read=True)
    if arms:
        raise TfdistError(f"--arm {arms[0]}: is for more than two folders; omit it")
    check_out(out, folders)
    compared = compare_folders(folders[0], folders[1], given["baseline"], bool(given["same_work"]))
    form = export_form(export, json)
    inconclusive = ExitCode.INCONCLUSIVE if given["fail_inconclusive"] else ExitCode.SUCCESS
    finish(partial(show_compared, compared, bound, out, form, inconclusive), until_read=True)


def show_compared(
    compared: ComparedFolders, bound: float | None, out: Path | None, form: ExportFormat | None, inconclusive: ExitCode
) -> ExitCode:
    """Show two benches compared, and write the report if there is a folder `out` for it; returns the exit code.

    `inconclusive`: the one if an arm may be slower than `bound`.
    """
    show(compared, bound, sys.stderr if form else sys.stdout)
    if out:
        typer.echo(f"\nreport: {write_comparison(compared, bound, out)}", err=form is not None)
    if form is ExportFormat.JSON:
        typer.echo(dumps(compared.to_json(bound)))
    elif form:
        typer.echo(dumps(exported(figures_of_changes(compared.changes), form)))
    code, _ = gate(compared, bound)
    return inconclusive if code is ExitCode.INCONCLUSIVE else code
