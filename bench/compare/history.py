"""The arms of many benches in order of time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tfdist.bench.reading import ResultFolder, read_folder
from tfdist.bench.report.across import OTHER_MACHINE, Change, changes, find_anchor, machine_differences
from tfdist.bench.report.build import summarize_report
from tfdist.bench.report.format import ends, labels_of
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import interval_of
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import did_you_mean

FORMAT = 1
"""Format of the JSON."""


@dataclass(frozen=True)
class BenchLabel:
    """One bench."""

    name: str
    started: str
    """UTC, ISO 8601."""
    commit: str
    """Commit of the repository in which it ran; empty: none."""
    machine: str
    tensorflow: str
    """Its version."""
    command: str


@dataclass(frozen=True)
class BenchPoint:
    """One arm in one bench."""

    bench: BenchLabel
    row: ArmRow
    change: Change | None
    """Change since the last bench that measured it; None: it is the first."""
    other_machine: bool
    """Whether that one was of another machine."""


@dataclass(frozen=True)
class BenchHistory:
    """Points of each arm, all in order of time."""

    benches: tuple[BenchLabel, ...]
    points: tuple[BenchPoint, ...]
    skipped: tuple[str, ...]
    """Records that could not be read, with the reason."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms, in the order of their first bench."""
        return tuple(dict.fromkeys(point.row.arm for point in self.points))

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that measured the benches, each once."""
        return tuple(dict.fromkeys(bench.command for bench in self.benches if bench.command))

    @property
    def decided(self) -> bool:
        """Whether any arm was compared with an earlier bench."""
        return any(interval_of(point.change.comparison) for point in self.points if point.change)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {
            "format": FORMAT,
            "benches": [vars(bench) for bench in self.benches],
            "points": [values_of(each) for each in self.points],
        }


def read_history(roots: Sequence[Path], patterns: Sequence[str] = ()) -> BenchHistory:
    """The arms of these benches that match one of `patterns` (fnmatch; none: all), oldest bench first.

    Raises:
        TfdistError: a folder has no records, or no arm matches.
    """
    folders = [read_folder(root, label) for root, label in zip(roots, labels_of(roots), strict=True)]
    measured = [(_labelled(folder), summarize_report([folder])[0]) for folder in folders if folder.records]
    benches = sorted(measured, key=lambda each: (each[0].started, each[0].name))
    names = dict.fromkeys(row.arm for _, rows in benches for row in rows)
    wanted = [name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not wanted:
        raise TfdistError(
            f"--arm {', '.join(patterns)}: no such arm in these benches; {did_you_mean(patterns[0], names)}"
            if patterns
            else f"nothing was measured in {', '.join(map(str, roots))}: give folders of benches"
        )
    skipped = tuple(text for folder in folders for text in folder.skipped)
    return BenchHistory(tuple(bench for bench, _ in benches), tuple(_points(benches, wanted)), skipped)


def _labelled(folder: ResultFolder) -> BenchLabel:
    first = min(folder.records, key=lambda record: (not record.hardware, record.started))  # not a refused one
    software = first.ranks[0].software if first.ranks else first.hardware.get("packages", {})
    cores = f"{len(first.hardware.get('cores', ()))} cores of {first.hardware.get('cpu', 'an unknown CPU')}"
    return BenchLabel(
        name=folder.label,
        started=folder.bench.started if folder.bench else first.started,
        commit=first.git_commit,
        machine=", ".join([cores, *map(str, first.hardware.get("gpus") or ())]),
        tensorflow=str(software.get("tensorflow", "")),
        command=folder.bench.command if folder.bench else first.command,
    )


def _points(benches: Sequence[tuple[BenchLabel, Sequence[ArmRow]]], wanted: Sequence[str]) -> Iterator[BenchPoint]:
    before: dict[str, Sequence[ArmRow]] = {}
    for bench, rows in benches:
        found: dict[int, tuple[dict[str, Change], bool]] = {}
        for row in rows:
            if row.arm in wanted and row.measured:
                previous = before.get(row.arm)
                if previous is not None and id(previous) not in found:  # most arms have the same bench before
                    found[id(previous)] = _since(previous, rows)
                changed, moved = found.get(id(previous), ({}, False))
                yield BenchPoint(bench, row, changed.get(row.arm), moved)
        before.update({row.arm: rows for row in rows if row.measured})


def _since(previous: Sequence[ArmRow], rows: Sequence[ArmRow]) -> tuple[dict[str, Change], bool]:
    anchor = find_anchor(previous, rows)
    moved = bool(machine_differences(previous, rows))
    compared = changes(previous, rows, anchor)
    if moved and not anchor:
        why = f"{OTHER_MACHINE}, and no arm on one device in both"
        compared = tuple(replace(change, comparison=None, reason=change.reason or why) for change in compared)
    return {change.arm: change for change in compared}, moved


def values_of(point: BenchPoint) -> dict[str, Any]:
    """The columns of history.csv."""
    row = point.row
    over = row.one_device.comparison if row.one_device and row.one_device.label != row.label else None
    since = point.change.comparison if point.change else None
    return {
        "bench": point.bench.name,
        "started": point.bench.started,
        "commit": point.bench.commit,
        "tensorflow": point.bench.tensorflow,
        "machine": point.bench.machine,
        "arm": row.arm,
        "images_per_s": row.images_per_s,
        **ends("images_per_s", row.spread),
        "speed_up": over.ratio if over else None,
        **ends("speed_up", over.interval if over else None),
        "since_last": since.ratio if since else None,
        **ends("since_last", since.interval if since else None),
        "since_last_verdict": str(since.verdict) if since else None,
        "not_compared": point.change.reason if point.change else "",
        "other_machine": point.other_machine,
        "rounds": row.rounds,
        "status": row.status,
    }
