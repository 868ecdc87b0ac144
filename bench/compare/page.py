"""Two benches compared, as a report."""

from pathlib import Path

from tfdist.bench.compare.answers import one_sided, sentences
from tfdist.bench.compare.folders import ComparedFolders
from tfdist.bench.report.ratios import ratio_chart, ratio_table
from tfdist.bench.report.section import Section, Table
from tfdist.bench.report.write import write_pages


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
        Section(
            "environment", "What differs in the environment", (), tables=(Table("environment", "Facts", table, table),)
        )
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
