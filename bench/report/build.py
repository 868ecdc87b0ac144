"""Folders of records -> a Report. Needs no TensorFlow."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfdist.bench.collectives.results import Sweep, holds_collectives, read_collectives
from tfdist.bench.folder import BenchPaths
from tfdist.bench.reading import ResultFolder, read_folder
from tfdist.bench.report.ceiling_section import ceiling_warnings
from tfdist.bench.report.columns import values_of
from tfdist.bench.report.environment import environment_of
from tfdist.bench.report.headline import headline
from tfdist.bench.report.key_figures import key_figures
from tfdist.bench.report.labels import labels_of
from tfdist.bench.report.measured import Measured
from tfdist.bench.report.notes import notes_on
from tfdist.bench.report.page import KeyFigure
from tfdist.bench.report.same_arms import SamePair, same_pairs
from tfdist.bench.report.scaling import Scaling, scaling_of
from tfdist.bench.report.section import Section
from tfdist.bench.report.section_files import to_json
from tfdist.bench.report.sections import sections_of
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.bench.report.unit import in_unit
from tfdist.bench.report.warning import Warning
from tfdist.bench.report.warnings import warnings_for
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import shortened
from tfdist.launch.typed_json import PositiveFloat, from_json, parse_json

FORMAT = 2
"""Format of report.json. Format 1 had medians over rounds, paired by round."""
_IN_ROWS = ("results", "costs")
"""Keys of sections whose figures report.json has as `rows`."""


@dataclass(frozen=True)
class _ReportPrice:
    """Part of report.json."""

    price_per_hour: PositiveFloat | None = None


@dataclass(frozen=True)
class Report:
    """The content of a report, independent of its format."""

    folders: tuple[ResultFolder, ...]
    rows: tuple[ArmRow, ...]
    scaling: Scaling
    headline: tuple[str, ...]
    """One text per folder."""
    same_arms: tuple[SamePair, ...]
    """How far arms of the same configuration differ: the report's own noise."""
    notes: tuple[str, ...]
    """Sentences below the table."""
    warnings: tuple[Warning, ...]
    environment: dict[str, tuple[str, ...]]
    """Fact -> its distinct values."""
    price_per_hour: float | None = None
    """Price of one host; None: unknown."""
    sections: tuple[Section, ...] = ()
    """Sections in their order, the tables of arms among them."""
    figures: tuple[KeyFigure, ...] = ()
    """The headline in numbers."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {
            "format": FORMAT,
            "headline": list(self.headline),
            "scaling": self.scaling,
            "price_per_hour": self.price_per_hour,
            "rows": [values_of(row, self.scaling, self.price_per_hour) for row in self.rows],
            "same_arms": [pair.to_json() for pair in self.same_arms],
            "notes": list(self.notes),
            "sections": [to_json(section) for section in self.sections if section.key not in _IN_ROWS],
            "warnings": [asdict(warning) for warning in self.warnings],
            "environment": {fact: list(values) for fact, values in self.environment.items()},
            "commands": [folder.bench.command for folder in self.folders if folder.bench],
            "unreadable": [{"folder": f.label, **asdict(bad)} for f in self.folders for bad in f.unreadable],
        }


def make_report(roots: Sequence[Path], price_per_hour: float | None = None) -> Report:
    """The report on the records in these folders.

    Args:
        price_per_hour: of one host; None: that of an earlier report in the folder, if there is only one.

    Raises:
        TfdistError: a folder has no records, or none in any folder is readable.
    """
    folders = tuple(read_folder(root, label) for root, label in zip(roots, labels_of(roots), strict=True))
    records = [record for folder in folders for record in folder.records]
    if not records:
        bad = [f"{entry.file}: {entry.reason}" for folder in folders for entry in folder.unreadable]
        names = ", ".join(map(str, roots))
        raise TfdistError(f"no readable record in {names} ({shortened(bad) or 'none written'}): run the bench again")
    rows = summarize(folders)
    pairs = same_pairs(rows)
    notes = notes_on(rows, pairs)
    price = _stored_price(roots) if price_per_hour is None else price_per_hour
    measured = Measured(folders, rows, notes, price, _sweeps(roots, folders))
    return Report(
        folders=folders,
        rows=rows,
        scaling=scaling_of(rows),
        headline=tuple(in_unit(text, rows) for text in headline(rows)),
        same_arms=pairs,
        notes=notes,
        warnings=(*warnings_for(rows, pairs), *ceiling_warnings(measured)),
        environment=environment_of(records),
        price_per_hour=price,
        sections=sections_of(measured),
        figures=key_figures(rows),
    )


def _sweeps(roots: Sequence[Path], folders: Sequence[ResultFolder]) -> dict[str, Sweep]:
    """The collectives in the folders of benches, by `ArmRow.folder`."""
    labels = [folder.label for folder in folders] if len(folders) > 1 else [""]
    paths = (BenchPaths(root).collectives for root in roots)
    return {label: read_collectives(path) for label, path in zip(labels, paths, strict=True) if holds_collectives(path)}


def _stored_price(roots: Sequence[Path]) -> float | None:
    """The price in report.json of the only folder."""
    if len(roots) > 1:
        return None
    try:
        return from_json(
            parse_json((roots[0] / "report.json").read_text(encoding="utf-8")), _ReportPrice
        ).price_per_hour
    except (OSError, ValueError):
        return None
