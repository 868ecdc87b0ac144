"""Reads the folder of a bench or launch; files that are not readable are listed, not raised."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfdist.bench.disturbance import disturbed
from tfdist.bench.folder import BenchFile, BenchPaths, Unreadable, printable, read_bench, read_lines
from tfdist.launch.errors import TfdistError
from tfdist.models.record import Record, RecordStatus, TurnRecord
from tfdist.models.throughput import throughput


@dataclass(frozen=True)
class ResultFolder:
    """The records of one bench or launch."""

    label: str
    """Its name in a report over several folders."""
    bench: BenchFile | None
    """None for a launch."""
    records: tuple[Record, ...]
    """The latest one of each arm, round and group, in the order of the runs."""
    replaced: tuple[Record, ...]
    """Those that a later run of the same arm and round replaced, and disturbed turns that were repeated."""
    unreadable: tuple[Unreadable, ...]

    @property
    def skipped(self) -> tuple[str, ...]:
        """A line for each of `unreadable`, with the reason."""
        return tuple(f"{self.label}/{bad.file}: {bad.reason}" for bad in self.unreadable)


def read_folder(root: Path, label: str) -> ResultFolder:
    """The records in `root`.

    Raises:
        TfdistError: `root` is missing, or has neither bench.json nor records.
    """
    if not root.is_dir():
        raise TfdistError(f"{root}: no such folder; give the folder of a bench or of a launch")
    if not holds_records(root):
        raise TfdistError(f"{root} has no records.jsonl: give the folder of a bench or of a launch")
    unreadable: list[Unreadable] = []
    bench = None
    try:
        bench = read_bench(root)
    except TfdistError as error:
        unreadable.append(Unreadable("bench.json", printable(str(error))))
    readable, bad_records = read_records(BenchPaths(root).records)
    turns, bad_turns = read_lines(BenchPaths(root).turns, TurnRecord.from_json)
    merged, dropped = merge(readable, turns)
    usable: list[Record] = []
    for record in merged:
        try:
            if record.status == RecordStatus.OK:
                throughput(record)
            usable.append(record)
        except ValueError as error:
            unreadable.append(Unreadable("turns.jsonl", f"{record.arm}, round {record.round}: {error}"))
    ordered = sorted(usable, key=lambda record: record.order)
    latest = {(record.arm, record.round, record.group): record for record in ordered}
    kept = {id(record) for record in latest.values()}
    replaced = tuple(record for record in ordered if id(record) not in kept)
    records = tuple(record for record in ordered if id(record) in kept)
    return ResultFolder(
        printable(label), bench, records, (*dropped, *replaced), (*unreadable, *bad_records, *bad_turns)
    )


def merge(records: Sequence[Record], turns: Sequence[TurnRecord]) -> tuple[list[Record], list[Record]]:
    """One record per measured turn, with the rest from the record of its incarnation, and one per failure.

    Repeated turns beside the baseline have the negative number of their group. An incarnation that failed keeps a
    record of its own, in the round after the arm's last turn. So does one that was interrupted, unless its arm has
    a turn.

    Returns:
        These records, and those that are dropped: disturbed turns that were repeated, and incarnations that failed
        before a later one of the same arm was measured.
    """
    starts = {(record.arm, record.incarnation): record for record in records if record.incarnation}
    merged = [record for record in records if not record.incarnation]
    repeats = {(turn.arm, turn.incarnation, turn.round) for turn in turns if turn.repeated}
    first = [turn for turn in turns if not turn.repeated and (turn.arm, turn.incarnation, turn.round) in repeats]
    replaced = {id(turn) for turn in first if disturbed(turn)}
    # a repeated turn is a block of its own if an arm was repeated only to be beside it
    apart = {(turn.group, turn.round) for turn in first if id(turn) not in replaced}
    by_arm: dict[str, list[TurnRecord]] = {}
    dropped: list[Record] = []
    for turn in turns:
        by_arm.setdefault(turn.arm, []).append(turn)
        if start := starts.get((turn.arm, turn.incarnation)):
            group = -turn.group if turn.repeated and (turn.group, turn.round) in apart else turn.group
            (dropped if id(turn) in replaced else merged).append(replace(of_turn(start, turn), group=group))
    for (arm, incarnation), record in starts.items():
        measured = by_arm.get(arm, [])
        if record.status == RecordStatus.OK or (record.status == RecordStatus.INTERRUPTED and measured):
            continue
        later = any(turn.incarnation > incarnation for turn in measured)
        last = max((turn.round for turn in measured if turn.incarnation <= incarnation or not later), default=0)
        (dropped if later else merged).append(replace(record, round=last + 1))
    return merged, dropped


def of_turn(start: Record, turn: TurnRecord) -> Record:
    """The record of one turn, with the rest from the record of its incarnation."""
    ranks = tuple(replace(rank, windows=turn.windows.get(rank.task, ())) for rank in start.ranks)
    return replace(
        start,
        round=turn.round,
        status=RecordStatus.OK,
        reason="",
        exit_code=0,
        ranks=ranks,
        started=turn.started,
        group=turn.group,
        order=turn.order,
        hosts_usage=turn.hosts,
        observed=turn.observed,
    )


def holds_records(root: Path) -> bool:
    """Whether a bench was started in it, or a launch measured something."""
    paths = BenchPaths(root)
    return os.path.exists(paths.bench) or os.path.exists(paths.records)  # noqa: PTH110 - false if it is not readable


def read_records(path: Path) -> tuple[list[Record], list[Unreadable]]:
    """The last record of each start of an arm, in their order, and the lines that cannot be read.

    An arm that was refused, and was started when the bench was continued, is no longer refused.
    """
    lines, bad = read_lines(path, _usable_record)
    last = {(record.order, record.arm, record.round, record.incarnation): record for record in lines}
    started = {record.arm for record in last.values() if record.status is not RecordStatus.REFUSED}
    records = [each for each in last.values() if each.status is not RecordStatus.REFUSED or each.arm not in started]
    return sorted(records, key=lambda record: record.order), bad


def last_number(root: Path) -> int:
    """The highest number of a run or record in the folder of a bench, unfinished runs included; 0 without any."""
    runs = (path.name.partition("-")[0] for path in (root / "runs").glob("[0-9]*"))
    orders = [record.order for record in read_records(BenchPaths(root).records)[0]]
    return max([*(int(number) for number in runs if re.fullmatch("[0-9]{1,9}", number)), *orders], default=0)


def _usable_record(values: dict[str, Any]) -> Record:
    """A record that statistics can be computed from.

    Raises:
        TfdistError: of another format, or `ok` without complete windows.
    """
    record = Record.from_json(values)
    needed = ("strategy",) if record.status is RecordStatus.REFUSED else ("strategy", "workers", "devices")
    missing = next((f"spec: {name} is missing" for name in needed if name not in record.spec), "")
    try:
        if record.status == RecordStatus.OK and not (record.incarnation or missing):
            throughput(record)
    except ValueError as error:
        missing = str(error)
    if missing:
        raise TfdistError(f"incomplete record: {missing}")
    return record
