"""What a folder of records holds, the unreadable ones named."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfdist.bench.folder import BenchFile, BenchPaths, read_bench
from tfdist.launch.errors import TfdistError
from tfdist.models.record import Record
from tfdist.models.throughput import exchange, throughput


@dataclass(frozen=True)
class Unreadable:
    """A record file that could not be used, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class ResultFolder:
    """What was found in the folder of one bench or launch."""

    label: str
    """What tells it apart in a report over several."""
    bench: BenchFile | None
    """None for the folder of a single launch."""
    records: tuple[Record, ...]
    """One for each arm and round, in the order in which they were made."""
    earlier: tuple[Record, ...]
    """Records that a later run of the same arm and round replaced."""
    unreadable: tuple[Unreadable, ...]


def read_folder(root: Path, label: str) -> ResultFolder:
    """All that `root` holds; what cannot be read is named in it, and no error.

    Raises:
        TfdistError: `root` is no folder with records.
    """
    paths = BenchPaths(root)
    if not holds_records(root):
        raise TfdistError(f"{root} holds no records/*.json: give the folder of a bench or of a launch")
    found: list[Record] = []
    unreadable: list[Unreadable] = []
    bench = _bench_or_reason(root, unreadable)
    for path in sorted(paths.records.glob("*.json")):
        try:
            found.append(read_record(path))
        except (TfdistError, OSError) as error:
            unreadable.append(Unreadable(f"records/{path.name}", str(error)))
    records, earlier = _latest(found)
    return ResultFolder(label, bench, records, earlier, tuple(unreadable))


def holds_records(root: Path) -> bool:
    """Whether a bench was begun there, or a launch measured something."""
    paths = BenchPaths(root)
    return paths.bench.exists() or paths.records.is_dir()


def read_record(path: Path) -> Record:
    """One record that can be reckoned with.

    Raises:
        TfdistError: cut short, of another version, or `ok` without whole windows.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise TfdistError("cut short, or no JSON at all") from None
    if not isinstance(data, dict):
        raise TfdistError("incomplete record: no JSON object")
    record = Record.from_json(data)
    try:
        _check_types(record)
        if record.status == "ok":
            throughput(record)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TfdistError(f"incomplete record: {error}") from None
    return record


def _check_types(record: Record) -> None:
    """What everything else relies on.

    Raises:
        ValueError: something is of another type.
    """
    exchange(record.spec["strategy"])
    for name, kind in (("arm", str), ("round", int), ("order", int), ("status", str), ("reason", str)):
        if not isinstance(getattr(record, name), kind):
            raise ValueError(f"{name} is {getattr(record, name)!r}")


def _bench_or_reason(root: Path, unreadable: list[Unreadable]) -> BenchFile | None:
    try:
        return read_bench(root)
    except TfdistError as error:
        unreadable.append(Unreadable("bench.json", str(error)))
        return None


def _latest(found: Sequence[Record]) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """The last record of each arm and round, and those that it replaced."""
    latest: dict[tuple[str, int], Record] = {}
    ordered = sorted(found, key=lambda record: record.order)
    for record in ordered:
        latest[record.arm, record.round] = record
    kept = set(map(id, latest.values()))
    records = tuple(record for record in ordered if id(record) in kept)
    return records, tuple(record for record in ordered if id(record) not in kept)
