"""Folders of records -> a Report. Needs no TensorFlow."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfdist.bench.reading import ResultFolder, read_folder
from tfdist.bench.report.columns import values_of
from tfdist.bench.report.environment import environment_of
from tfdist.bench.report.headline import headline
from tfdist.bench.report.scaling import Scaling, scaling_of
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.bench.report.warnings import Warning, warnings_for
from tfdist.launch.errors import TfdistError


@dataclass(frozen=True)
class Report:
    """The content of a report, independent of its format."""

    folders: tuple[ResultFolder, ...]
    rows: tuple[ArmRow, ...]
    scaling: Scaling
    headline: tuple[str, ...]
    """One text per folder."""
    warnings: tuple[Warning, ...]
    environment: dict[str, tuple[str, ...]]
    """Fact -> its distinct values."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {
            "format": 1,
            "headline": list(self.headline),
            "scaling": self.scaling,
            "rows": [values_of(row, self.scaling) for row in self.rows],
            "warnings": [asdict(warning) for warning in self.warnings],
            "environment": {fact: list(values) for fact, values in self.environment.items()},
            "commands": [folder.bench.command for folder in self.folders if folder.bench],
            "unreadable": [{"folder": f.label, **asdict(bad)} for f in self.folders for bad in f.unreadable],
        }


def make_report(roots: Sequence[Path]) -> Report:
    """The report on the records in these folders.

    Raises:
        TfdistError: a folder has no records, or none in any folder is readable.
    """
    folders = tuple(read_folder(root, label) for root, label in zip(roots, labels_of(roots), strict=True))
    records = [record for folder in folders for record in folder.records]
    if not records:
        bad = [f"{entry.file}: {entry.reason}" for folder in folders for entry in folder.unreadable]
        names = ", ".join(map(str, roots))
        raise TfdistError(f"no readable record in {names} ({'; '.join(bad) or 'none written'}): run the bench again")
    rows = summarize(folders)
    return Report(folders, rows, scaling_of(rows), headline(rows), warnings_for(rows), environment_of(records))


def labels_of(roots: Sequence[Path]) -> list[str]:
    """The names of the folders; if two are equal, their paths below the common parent."""
    names = [root.resolve().name for root in roots]
    if len(set(names)) == len(names):
        return names
    paths = [str(root.resolve()) for root in roots]
    common = os.path.commonpath(paths)
    return [os.path.relpath(path, common) for path in paths]
