"""The folder of a bench: its paths, and bench.json."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfdist.bench.plan import PlannedRun, spread
from tfdist.bench.suites.check import IN_STEPS
from tfdist.bench.suites.suite import Suite, parse_suite
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.models.record import Record

FORMAT = 2
READABLE = (1, FORMAT)
"""Format 1: each run was a training of a number of steps in fresh processes."""
_FORMAT_1_ONLY = (*IN_STEPS, "timeout")


@dataclass(frozen=True)
class BenchFile:
    """bench.json: the suite, the command and the plan."""

    suite: Suite
    command: str
    started: str
    """UTC, ISO 8601."""
    plan: tuple[PlannedRun, ...]
    hosts: tuple[str, ...] = (LOCAL.name,)
    format: int = FORMAT
    """Of the file; one of an older format can be reported, not resumed."""
    last_rounds: tuple[int, ...] = ()
    """Of each start of the processes, of a bench that was extended; empty: the suite's rounds are spread evenly."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The last round of each start of the processes."""
        return self.last_rounds or spread(self.suite.rounds, self.suite.incarnations)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        plan = [asdict(run) for run in self.plan]
        return {**vars(self), "format": FORMAT, "suite": self.suite.to_json(), "plan": plan}


@dataclass(frozen=True)
class BenchPaths:
    """The paths in the folder of a bench."""

    root: Path

    @property
    def bench(self) -> Path:
        """See `BenchFile`."""
        return self.root / "bench.json"

    @property
    def page(self) -> Path:
        """The report for a browser."""
        return self.root / "report.html"

    @property
    def records(self) -> Path:
        """One JSON file per incarnation of an arm."""
        return self.root / "records"

    @property
    def turns(self) -> Path:
        """A `TurnRecord` in each line, written when the turn ended."""
        return self.root / "turns.jsonl"

    @property
    def collectives(self) -> Path:
        """The measurements of `tfdist collectives` that the ceiling comes from."""
        return self.root / "collectives"

    def record(self, record: Record) -> Path:
        """The file of one record; its number makes it unique."""
        return self.records / f"{record.order:03d}-{slug(record.arm)}-i{record.incarnation}.json"

    def refused(self, number: int, arm: str) -> Path:
        """The record of a refused arm; `number` is its position in the suite."""
        return self.records / f"refused-{number:02d}-{slug(arm)}.json"

    def run(self, order: int, arm: str, incarnation: int) -> Path:
        """The logs of one incarnation of an arm."""
        return self.root / "runs" / f"{order:03d}-{slug(arm)}-i{incarnation}"

    def last_number(self) -> int:
        """The highest number of any run or record, unfinished ones included; 0 without any."""
        names = [path.name for folder in (self.records, self.root / "runs") for path in folder.glob("[0-9]*")]
        return max((int(name.partition("-")[0]) for name in names if name.partition("-")[0].isdigit()), default=0)


def slug(name: str) -> str:
    """`name` as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "arm"


def read_bench(root: Path) -> BenchFile | None:
    """bench.json of a folder; None if it is missing.

    Raises:
        TfdistError: it is not readable, or of another format.
    """
    path = BenchPaths(root).bench
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] not in READABLE:
            raise TfdistError(f"{path} has format {data['format']!r}: this tfdist reads formats 1 and {FORMAT}")
        plan = tuple(PlannedRun(**run) for run in data["plan"])
        suite = parse_suite(data["suite"] if data["format"] == FORMAT else _of_format_1(data["suite"]), str(path))
        hosts = tuple(data.get("hosts", (LOCAL.name,)))
        ends = tuple(data.get("last_rounds", ()))
        return BenchFile(suite, data["command"], data["started"], plan, hosts, data["format"], ends)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TfdistError(f"{path} cannot be read ({error}): start a new bench") from None


def _of_format_1(suite: Mapping[str, Any]) -> dict[str, Any]:
    """The suite of format 1 without what has no meaning in turns."""

    def without(table: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in table.items() if key not in _FORMAT_1_ONLY}

    return {**without(suite), "isolated": True, "arms": [without(arm) for arm in suite["arms"]]}


def check_writable(root: Path, option: str) -> None:
    """Refuse a folder in which no file can be created; it may not exist yet.

    Raises:
        TfdistError: naming the option that gave the folder.
    """
    existing = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise TfdistError(f"{option} {root}: {existing} is a file; choose another folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise TfdistError(f"{option} {root}: {existing} is not writable; choose another folder")
