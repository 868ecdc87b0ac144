"""Two benches compared: sentences, and a report."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tfdist.bench.compare.folders import ComparedFolders
from tfdist.bench.report.section import Section
from tfdist.bench.report.sections.ratios import ratio_chart, ratio_table
from tfdist.bench.report.write import write_pages
from tfdist.bench.table import Table
from tfdist.launch.text import counted


def sentences(compared: ComparedFolders, bound: float | None) -> Iterator[str]:
    """What was compared, how small a change it can show, and the answer."""
    if compared.anchor:
        yield (
            f"Ratios are of speed-ups over {compared.anchor}, so that a change of the whole machine cancels; that of "
            f"{compared.anchor} is of images/s. Together the arms became {compared.machine_ratio:.2f} times as fast: "
            "the more that differs from 1, the wider the intervals, because arms need not follow the machine exactly."
        )
    else:
        yield "Ratios are of images/s: their intervals contain the drift of the machine, as it was within the benches."
    if compared.machine and not compared.anchor:
        yield f"warning: another machine ({'; '.join(compared.machine)}): ratios compare the machines, too."
    intervals = [each.comparison.interval for each in compared.changes if each.comparison]
    halves = [1 - found.low / (found.low * found.high) ** 0.5 for found in intervals if found]
    if halves:
        yield f"A change of less than about {median(halves):.0%} cannot be told from the noise of these benches."
    if len(halves) < len(intervals):
        yield "Arms without an interval have fewer than 3 rounds in one of the benches: add rounds to compare them."
    if bound is not None:
        slow = [change.arm for change in compared.too_slow(bound)]
        tested = counted(len(halves), "arm")
        limit = f"{100 * bound:.3g} %"
        none = f"No arm is surely slower by more than {limit}, of {tested} compared."
        yield f"Surely slower by more than {limit}: {', '.join(slow)}." if slow else none


def one_sided(compared: ComparedFolders) -> Iterator[str]:
    """Arms that only one bench measured, and files that could not be read."""
    for label, arms in ((compared.base, compared.only_base), (compared.new, compared.only_new)):
        if arms:
            yield f"only in {label}: {', '.join(arms)}"
    for bad in compared.unreadable:
        yield f"skipped {bad.file}: {bad.reason}"


def write_comparison(compared: ComparedFolders, bound: float | None, out: Path) -> Path:
    """Write report.html, report.md, compare.csv and a plot into `out`, and return the path of the page.

    Raises:
        TfdistError: `out` is not writable.
    """
    title, notes = f"{compared.new} compared with {compared.base}", list(sentences(compared, bound))
    headline = [notes.pop()] if bound is not None else []
    return write_pages(out, title, headline, [*_environment(compared), _arms(compared, notes, bound)])


def _environment(compared: ComparedFolders) -> list[Section]:
    import pandas as pd

    if not compared.environment:
        return []
    table = pd.DataFrame([vars(each) for each in compared.environment])
    return [
        Section("environment", "What differs in the environment", (), tables=(Table("environment", "Facts", table),))
    ]


def _arms(compared: ComparedFolders, notes: list[str], bound: float | None) -> Section:
    changes = compared.changes
    labels = [change.arm for change in changes]
    return Section(
        "arms",
        "Arms",
        tuple(one_sided(compared)),
        charts=(ratio_chart("ratios", "New over base", changes, labels, bound),),
        tables=(ratio_table("compare", "Arms of both benches", changes, compared.anchor),),
        notes=tuple(notes),
    )
