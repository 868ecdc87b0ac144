"""Folders of records -> report.md, report.csv, report.json and the pictures. Needs no TensorFlow."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfdist.bench.reading import ResultFolder, read_folder
from tfdist.bench.report import plots, tables
from tfdist.bench.report.columns import values_of
from tfdist.bench.report.environment import environment_of
from tfdist.bench.report.headline import headline
from tfdist.bench.report.markdown import markdown
from tfdist.bench.report.scaling import IN_WORDS, ScalingSeen, scaling_of
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.bench.report.warnings import Warning, warnings_for
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import save_json


@dataclass(frozen=True)
class Report:
    """All that a report says, before it is written in one form or another."""

    folders: tuple[ResultFolder, ...]
    rows: tuple[ArmRow, ...]
    scaling: ScalingSeen
    headline: tuple[str, ...]
    warnings: tuple[Warning, ...]
    environment: dict[str, tuple[str, ...]]

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
    """The report over what these folders hold.

    Raises:
        TfdistError: a folder holds no records, or no record of all can be read.
    """
    folders = tuple(read_folder(root, label) for root, label in zip(roots, labels_of(roots), strict=True))
    if not any(folder.records for folder in folders):
        raise TfdistError(_nothing_readable(roots, folders))
    rows = summarize(folders)
    records = [record for folder in folders for record in folder.records]
    return Report(folders, rows, scaling_of(rows), headline(rows), warnings_for(rows), environment_of(records))


def write_report(report: Report, out: Path) -> Path:
    """Write every file into `out`, and return report.md's path.

    Raises:
        TfdistError: it cannot be written there.
    """
    pictures = plots.draw(report.rows, IN_WORDS[report.scaling])
    table = tables.frame(report.rows, report.scaling)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in plots.PLOTS:
            (out / name).unlink(missing_ok=True)
        for name, content in pictures.items():
            (out / name).write_bytes(content)
        (out / "report.csv").write_text(tables.to_csv(table), encoding="utf-8")
        save_json(out / "report.json", report.to_json())
        (out / "report.md").write_text(
            markdown(report, tables.to_markdown(report.rows), list(pictures)), encoding="utf-8"
        )
    except OSError as error:
        raise TfdistError(
            f"cannot write the report to {out} ({error.strerror}): choose another folder with --out"
        ) from None
    return out / "report.md"


def labels_of(roots: Sequence[Path]) -> list[str]:
    """The folders' names, or where two are called the same their paths, without what all paths have in common."""
    names = [root.resolve().name for root in roots]
    if len(set(names)) == len(names):
        return names
    whole = [str(root.resolve()) for root in roots]
    common = os.path.commonpath(whole)
    return [os.path.relpath(path, common) for path in whole]


def _nothing_readable(roots: Sequence[Path], folders: Sequence[ResultFolder]) -> str:
    bad = [f"{entry.file}: {entry.reason}" for folder in folders for entry in folder.unreadable]
    where = ", ".join(map(str, roots))
    return f"no record in {where} can be read ({'; '.join(bad) or 'there is none yet'}): run the bench again"
