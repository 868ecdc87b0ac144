"""Folders of records -> a Report: its table, key figures, notes and sections. Needs no TensorFlow."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfdist.bench.collectives.results import Sweep, holds_collectives, read_collectives
from tfdist.bench.folder import BenchPaths
from tfdist.bench.reading import ResultFolder, read_folder
from tfdist.bench.report.batch_section import batch_section
from tfdist.bench.report.ceiling_section import ceiling_section, ceiling_warnings
from tfdist.bench.report.collectives_section import all_reduce_section
from tfdist.bench.report.columns import values_of
from tfdist.bench.report.convergence_section import convergence_section
from tfdist.bench.report.costs_section import costs_section
from tfdist.bench.report.efficiency_section import efficiency_section
from tfdist.bench.report.environment import environment_of
from tfdist.bench.report.folders_section import folders_section
from tfdist.bench.report.format import interval
from tfdist.bench.report.headline import best_of, headline
from tfdist.bench.report.kinds_section import kinds_section
from tfdist.bench.report.labels import labels_of
from tfdist.bench.report.lost_time_section import lost_time_section
from tfdist.bench.report.page import KeyFigure
from tfdist.bench.report.report_data import ReportData
from tfdist.bench.report.results_section import results_section
from tfdist.bench.report.same_arms import SamePair, same_pairs
from tfdist.bench.report.scaling import Scaling, scaling_of
from tfdist.bench.report.scaling_section import scaling_section
from tfdist.bench.report.section import Section
from tfdist.bench.report.section_files import to_json
from tfdist.bench.report.storage_section import storage_section
from tfdist.bench.report.straggler_section import straggler_section
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.bench.report.unit import in_unit
from tfdist.bench.report.warning import Warning
from tfdist.bench.report.warnings import warnings_for
from tfdist.bench.report.windows_section import windows_section
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import counted, shortened
from tfdist.launch.typed_json import PositiveFloat, from_json, parse_json

__all__ = ["SECTIONS", "ReportData", "sections_of"]

SectionOf = Callable[[ReportData], Section | None]
"""None: the folders hold no data for it."""

SECTIONS: Sequence[SectionOf] = (
    kinds_section,
    scaling_section,
    results_section,
    folders_section,
    efficiency_section,
    lost_time_section,
    windows_section,
    ceiling_section,
    all_reduce_section,
    convergence_section,
    straggler_section,
    storage_section,
    batch_section,
    costs_section,
)
"""Each in a file of its own: `bench/report/NAME_section.py`."""


def sections_of(measured: ReportData) -> tuple[Section, ...]:
    """The sections that have data."""
    return tuple(section for make in SECTIONS if (section := make(measured)) is not None)


def notes_on(rows: Sequence[ArmRow], pairs: Sequence[SamePair]) -> tuple[str, ...]:
    """Sentences below the table."""
    measured = [row for row in rows if row.measured]
    return (*_comparisons(measured), *_noise(measured, pairs), *_groups(measured))


def _comparisons(rows: Sequence[ArmRow]) -> Iterator[str]:
    numbers = {row.folder: row.one_device.comparison.comparisons for row in rows if row.one_device}
    for folder, number in numbers.items():
        if number > 1:
            yield (
                f"{_prefix(folder)}{number} comparisons with one device: their intervals are widened (Holm) so that "
                f"equal arms are called faster or slower in at most 5 % of benches."
            )


def _noise(rows: Sequence[ArmRow], pairs: Sequence[SamePair]) -> Iterator[str]:
    for pair in pairs:
        interval = pair.comparison.interval
        few = f"fewer than {FEWEST_ROUNDS} rounds, so no interval"
        between = f"{interval.low:.3f} to {interval.high:.3f}" if interval else few
        yield (
            f"Noise (A/A): {pair.arm} and {pair.other} are the same configuration, and {pair.arm} is "
            f"{pair.comparison.ratio:.3f} times as fast ({between})."
        )
    if not pairs and len(rows) > 1:
        yield (
            "The noise of this report is unknown, because no two arms are the same configuration: add one arm twice "
            "under two names (A/A)."
        )


def _groups(rows: Sequence[ArmRow]) -> Iterator[str]:
    for folder in dict.fromkeys(row.folder for row in rows):
        groups = {block.group for row in rows if row.folder == folder for block in row.rates}
        if len(groups) > 1:
            yield (
                f"{_prefix(folder)}The arms took turns in {len(groups)} groups, because they did not fit into memory "
                f"together or some were measured later. They are compared through the arms that are in several groups."
            )


def _prefix(folder: str) -> str:
    return f"{folder}: " if folder else ""


def key_figures(rows: Sequence[ArmRow]) -> tuple[KeyFigure, ...]:
    """Figures of the fastest arm; empty in a report over several folders, or if no arm can be ranked."""
    best = best_of(rows) if len({row.folder for row in rows}) == 1 else None
    return tuple(_figures(best)) if best else ()


def _figures(best: ArmRow) -> Iterator[KeyFigure]:
    between = f" ({interval(best.spread, '.1f')})" if best.spread else ""
    unit = in_unit("images/s", [best])
    yield KeyFigure(f"{best.images_per_s:.1f} {unit}", f"whole job, {counted(best.devices or 0, 'device')}{between}")
    one, independent = best.one_device, best.independent
    if one and one.label != best.label:
        comparison = one.comparison
        between = f" ({interval(comparison.interval, '.2f')})" if comparison.interval else ""
        certain = comparison.verdict is not ArmVerdict.CANNOT_TELL
        verdict = f"measurably {comparison.verdict}" if certain else "no measurable difference"
        yield KeyFigure(f"{comparison.ratio:.2f} times", f"{one.label}{between}: {verdict}")
        yield KeyFigure(f"{one.efficiency:.0%}", f"efficiency against {one.label}")
    if independent and independent.label != best.label:
        yield KeyFigure(f"{independent.efficiency:.0%}", f"of {independent.label}, which exchanges nothing")


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
    measured = ReportData(folders, rows, notes, price, _sweeps(roots, folders))
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
