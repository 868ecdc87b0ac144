"""How long starts and turns of a bench took, and so what they will cost in this machine's next benches.

Each bench adds a line to durations.csv (`history`).
"""

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from tfdist.bench.folder import BenchFile, BenchPaths, read_bench, read_lines
from tfdist.bench.history import append_rows, history_file, read_rows
from tfdist.bench.plan import BY_TABLE, Costs, PlannedRun, start_of, start_s
from tfdist.bench.reading import read_records
from tfdist.bench.suites.suite import Suite
from tfdist.launch.errors import TfdistError
from tfdist.launch.redact import redact_arguments
from tfdist.models.record import Record, RecordStatus, TurnRecord
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

LAST = 10
"""The benches that an estimate uses: the last ones."""
_FILE = "durations.csv"
_COLUMNS = ("machine", "folder", "suite", "kind", "starts_s", "by_table_s", "edge_s")
"""Columns of the file: the machine's name, the absolute path of the bench, the suite's name, its `_kind`; the wall
seconds of all starts, and what the table of strategies says of them; and `Costs.edge_s`."""


def choice_of(spec: Mapping[str, Any]) -> StrategyChoice:
    """What decides how long the processes of an arm take to start, from `Record.spec`."""
    names = ("workers", "ps", "devices", "gpus", *(() if spec.get("command") else ("xla",)))
    kind = StrategyChoice if spec.get("command") else TrainingSpec
    known = {name: spec[name] for name in names if spec.get(name) is not None}
    return kind(strategy=StrategyName(spec["strategy"]), **known)


@dataclass(frozen=True)
class Durations:
    """How long the starts and turns of one bench took."""

    starts_s: float
    """Wall seconds of all starts, warm-ups included."""
    by_table_s: float
    """What `start_s` says of them. Arms that are started again beside those that did not fit into memory count once."""
    edge_s: float
    """See `Costs`."""


def durations(bench: BenchFile, records: Iterable[Record], turns: Iterable[TurnRecord]) -> Durations | None:
    """Those of the starts whose arms all ended well; None: there is none.

    Args:
        bench: what was measured.
        records: the last one of each start of an arm.
        turns: all of them.
    """
    suite = bench.suite
    starts: dict[tuple[int, str], tuple[list[Record], list[TurnRecord]]] = {}
    for record in records:
        starts.setdefault(_start(suite, record), ([], []))[0].append(record)
    for turn in turns:
        if (start := starts.get(_start(suite, turn))) is not None:
            start[1].append(turn)
    starts_s = turns_s = 0.0
    done: dict[PlannedRun, Record] = {}
    for arms, of_arms in starts.values():
        if not of_arms or not all(arm.status == RecordStatus.OK and arm.incarnation and arm.wall_s > 0 for arm in arms):
            continue
        try:
            ready = min(map(_time, of_arms))
            starts_s += ready - min(map(_time, arms))
            turns_s += max(_time(arm) + arm.wall_s for arm in arms) - ready
        except (ValueError, OverflowError):
            return None
        by_name = {arm.arm: arm for arm in arms}
        done |= {PlannedRun(each.round, each.arm): by_name[each.arm] for each in of_arms if each.arm in by_name}
    planned = {(run.arm, start_of(run.round, bench.ends)): arm for run, arm in done.items()}
    by_table_s = sum(start_s(choice_of(arm.spec), suite.isolated) + suite.warmup_s for arm in planned.values())
    return Durations(starts_s, by_table_s, turns_s / len(done) - suite.turn_s) if done else None


def _start(suite: Suite, of: Record | TurnRecord) -> tuple[int, str]:
    """Which arms start together; arms that are measured alone have the number of their round."""
    return of.incarnation, of.arm if suite.isolated else ""


def _time(of: Record | TurnRecord) -> float:
    """Seconds of the clock, with the resolution of a second.

    Raises:
        ValueError, OverflowError: it is no time.
    """
    return datetime.fromisoformat(of.started).timestamp()


def remember(root: Path, machine: str) -> str:
    """Append the durations of the bench in `root`; returns a warning if that is not possible, else an empty text.

    If a bench is resumed, its last line counts.
    """
    with suppress(TfdistError):  # the report says what of it cannot be read
        bench = read_bench(root)
        records, _ = read_records(BenchPaths(root).records)
        turns, _ = read_lines(BenchPaths(root).turns, TurnRecord.from_json)
        found = None if bench is None else durations(bench, records, turns)
        if bench is None or found is None:
            return ""
        seconds = (f"{value:.4g}" for value in (found.starts_s, found.by_table_s, found.edge_s))
        row = (machine, root.resolve(), bench.suite.name, _kind(bench.suite), *seconds)
        try:
            append_rows(_FILE, _COLUMNS, [row])
        except OSError as error:
            return f"how long starts and turns took is not added to {history_file(_FILE)}: {error.strerror}"
    return ""


def costs_on(machine: str, suite: Suite) -> Costs:
    """Those of this machine's last benches of the suite; without one, of those with its preset, or its programs.

    Without such a bench, as the table of strategies says.
    """
    rows = read_rows(_FILE, _COLUMNS)
    last = {line["folder"]: line for line in rows if (line["machine"], line["kind"]) == (machine, _kind(suite))}
    same = [line for line in last.values() if line["suite"] == suite.name]
    found = list(_costs(same)) or list(_costs(last.values()))
    if not found:
        return BY_TABLE
    return Costs(median(each.starts for each in found[-LAST:]), median(each.edge_s for each in found[-LAST:]))


def _costs(lines: Iterable[Mapping[str, str]]) -> Iterator[Costs]:
    for line in lines:
        with suppress(ValueError):
            starts_s, by_table_s, edge_s = (float(line[name]) for name in _COLUMNS[-3:])
            if 0 < starts_s < math.inf and 0 < by_table_s < math.inf and abs(edge_s) < math.inf:
                yield Costs(starts_s / by_table_s, max(0.0, edge_s))


def _kind(suite: Suite) -> str:
    """The programs of the user, or the preset: benches with equal ones have starts that are alike."""
    programs = dict.fromkeys(shlex.join(redact_arguments(arm.command)[:2]) for arm in suite.arms if arm.command)
    return "; ".join(programs) or suite.preset or ""
