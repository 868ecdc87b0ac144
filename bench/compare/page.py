"""Two benches compared: sentences, and a report."""

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pandas as pd

from tfdist.bench.compare.folders import ComparedFolders
from tfdist.bench.compare.gate import gate_sentence
from tfdist.bench.report.section import Page, Section
from tfdist.bench.report.sections.ratios import ratio_chart, ratio_table
from tfdist.bench.report.verdict import changes_text
from tfdist.bench.report.write import write_page
from tfdist.bench.statistics import Interval
from tfdist.bench.table import Table
from tfdist.launch.errors import ExitCode
from tfdist.launch.text import counted


def gate(compared: ComparedFolders, bound: float | None) -> tuple[ExitCode, str]:
    """The answer of `--fail-slower`; without it what changed."""
    if not compared.decided:
        arms = counted(len(compared.changes), "arm")
        return ExitCode.NOTHING_COMPARED, f"Nothing compared: none of {arms} of both benches has an interval."
    if bound is None:
        # the anchor stands for the machine
        shown = [each for each in compared.changes if not each.anchor] or compared.changes
        changes = [(each.arm, each.comparison, each.reason) for each in shown]
        return ExitCode.SUCCESS, " ".join(changes_text(changes, "the base"))
    slow, unsure = compared.too_slow(bound), compared.unsure(bound)
    code = ExitCode.FAILED if slow else ExitCode.INCONCLUSIVE if unsure else ExitCode.SUCCESS
    return code, gate_sentence(bound, slow, unsure, compared.decided)


def sentences(compared: ComparedFolders) -> Iterator[str]:
    """What was compared, and how small a change it can show."""
    if compared.anchor:
        yield (
            f"Ratios are of speed-ups over {compared.anchor}, so that a change of the whole machine cancels; that of "
            f"{compared.anchor} is of throughput. Together the arms became {compared.machine_ratio:.2f} times as fast: "
            "the more that differs from 1, the wider the intervals, because arms need not follow the machine exactly."
        )
    else:
        yield "Ratios are of throughput: their intervals contain the machine's drift, as it was within the benches."
    if compared.machine and not compared.anchor:
        yield f"warning: another machine ({'; '.join(compared.machine)}): ratios compare the machines, too."
    intervals = [each.comparison.interval for each in compared.changes if each.comparison]
    if halves := [_half(found) for found in intervals if found]:
        yield f"Changes of less than about {median(halves):.0%} are within the noise of these benches."
    plain = next((each.comparison.interval for each in compared.changes if each.comparison and not each.anchored), None)
    size = f"of less than about {_half(plain):.0%} " if plain else ""
    yield (
        f"A change {size}that all arms share may be one of the machine's speed: measure two versions in one "
        "bench, with 'tfdist bench --against'."
    )
    if len(halves) < len(intervals):
        yield "Arms without an interval have fewer than 3 rounds in one of the benches: add rounds to compare them."
    if any("command: " in each.reason for each in compared.changes):
        yield "If another command line of your program does the same work, compare it with --same-work."


def _half(found: Interval) -> float:
    """Half of its width, as a share of its middle."""
    return 1 - math.sqrt(found.low / found.high)


def one_sided(compared: ComparedFolders) -> Iterator[str]:
    """Arms that only one bench measured, and files that could not be read."""
    for label, arms in ((compared.base, compared.only_base), (compared.new, compared.only_new)):
        if arms:
            yield f"only in {label}: {', '.join(arms)}"
    yield from (f"skipped {text}" for text in compared.skipped)


def write_comparison(compared: ComparedFolders, bound: float | None, out: Path) -> Path:
    """Write report.html, report.md, compare.csv and a plot into `out`, and return the path of the page.

    Raises:
        TfdistError: `out` is not writable.
    """
    title, (_, headline) = f"{compared.new} compared with {compared.base}", gate(compared, bound)
    changes, facts = compared.changes, pd.DataFrame(map(vars, compared.environment))
    arms = Section(
        "arms",
        "Arms",
        tuple(one_sided(compared)),
        charts=(ratio_chart("ratios", "New over base", changes, [change.arm for change in changes], bound),),
        tables=(ratio_table("compare", "Arms of both benches", changes, compared.anchor),),
        notes=tuple(sentences(compared)),
    )
    tables = (Table("environment", "Facts", facts),)
    environment = Section("environment", "What differs in the environment", (), tables=tables)
    sections = (environment, arms) if compared.environment else (arms,)
    return write_page(Page(title, (headline,), sections), out)
