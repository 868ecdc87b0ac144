"""The folder of a bench: its paths, and bench.json."""

import fcntl
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypeVar

from tfdist.bench.plan import PlannedRun, extended, interleave, spread, start_of
from tfdist.bench.statistics import FLOOR
from tfdist.bench.suites.arm import LONGEST_NAME
from tfdist.bench.suites.suite import Suite, parse_suite
from tfdist.launch.agent_program.folders import make_folder, why_unsafe
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.json_files import LARGEST_RECORD, load_json, parse_bounded, read_json_lines, reason_of
from tfdist.launch.program_copy import Origin
from tfdist.launch.runs.rundir import FileIn
from tfdist.launch.text import plain
from tfdist.launch.typed_json import Between, PositiveInt, from_json, shown, with_texts

T = TypeVar("T")

FORMAT = 2
_LONGEST_TEXT = 10_000
"""Characters of a text in a record: a command may be long."""
MOST_BAD = 1000
"""Lines of a file that are refused; it is not ours if it has more."""


@dataclass(frozen=True)
class BenchFile:
    """bench.json: the suite, the command and the plan."""

    suite: Suite
    command: str
    started: str
    """UTC, ISO 8601."""
    plan: tuple[PlannedRun, ...]
    hosts: tuple[str, ...] = (LOCAL.name,)
    last_rounds: tuple[PositiveInt, ...] = ()
    """Last rounds of each start of the processes, if the bench was extended; empty: the rounds are spread evenly."""
    floor: Annotated[float, Between(0, 1)] = FLOOR
    """`Statistics.floor`, as the machine's history was when the bench began."""
    machine: str = ""
    """`same_arms.machine_name`."""
    precision: Annotated[float, Between(0, 1)] | None = None
    """Starts are added until half of each ratio's interval is at most this share of it; None: none are."""
    most_starts: PositiveInt = 200
    """No more are added then."""
    looks: PositiveInt = 1
    """Starts after each of which arms are dropped that are slower for sure, and the bench may end, see `adaptive`; they
    share the error of the report. 1: every arm is measured to the end."""
    slower: tuple[str, ...] = ()
    """The arms that a look found to be slower than the best for sure."""
    fail_slower: Annotated[float, Between(0, 1)] | None = None
    """The bound of the gate on versions; None: there is none."""
    copy: Origin | None = None
    """The folder in whose copy programs of the user ran."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The last round of each start of the processes."""
        return self.last_rounds or spread(self.suite.rounds, self.suite.incarnations)

    def with_rounds(self, rounds: int) -> "BenchFile":
        """The bench with this number of rounds; added ones have starts of their own."""
        if rounds == self.suite.rounds:
            return self
        ends = extended(self.ends, rounds)
        suite = replace(self.suite, rounds=rounds, incarnations=len(ends))
        planned, last = {*self.plan}, self.suite.rounds
        going_on = {run.arm for run in self.plan if run.round == last}
        runs = (run for run in full_plan(suite) if run in planned or (run.round > last and run.arm in going_on))
        return replace(self, suite=suite, plan=tuple(runs), last_rounds=ends)

    @property
    def dropped(self) -> Mapping[str, int]:
        """The arms that are not measured to the end, each with the number of starts after which it was dropped."""
        last = {run.arm: run.round for run in self.plan}
        return {arm: start_of(end, self.ends) + 1 for arm, end in last.items() if end < self.suite.rounds}

    def without(self, arms: Collection[str], starts: int) -> "BenchFile":
        """The bench that measures these arms in this number of starts only, which may be 0."""
        end = (0, *self.ends)[starts]
        return replace(self, plan=tuple(run for run in self.plan if run.arm not in arms or run.round <= end))

    def with_arms(self, arms: Collection[str], starts: int) -> "BenchFile":
        """The bench that measures these arms, too, after this number of starts."""
        planned, end = {*self.plan}, self.ends[starts - 1]
        runs = (run for run in full_plan(self.suite) if run in planned or (run.arm in arms and run.round > end))
        return replace(self, plan=tuple(runs))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        plan = [asdict(run) for run in self.plan]
        copy = None if self.copy is None else asdict(self.copy)
        return {**vars(self), "format": FORMAT, "suite": self.suite.to_json(), "plan": plan, "copy": copy}


def full_plan(suite: Suite) -> tuple[PlannedRun, ...]:
    """Every arm of a suite in every round."""
    return interleave([arm.name for arm in suite.arms], suite.rounds, suite.seed, suite.version_pairs)


@dataclass(frozen=True)
class BenchPaths:
    """The paths in the folder of a bench."""

    path: Path
    bench = FileIn("bench.json")
    """See `BenchFile`."""
    page = FileIn("report.html")
    """The report for a browser."""
    records = FileIn("records.jsonl")
    """A `Record` in each line: of an incarnation when it is ready and when it has ended, and of refused arms."""
    turns = FileIn("turns.jsonl")
    """A `TurnRecord` in each line, written when the turn ended."""
    collectives = FileIn("collectives")
    """The measurements of `tfdist collectives` that the ceiling comes from."""
    copy = FileIn("copy.tar.gz")
    """The copy in which programs of the user run."""
    xla_cache = FileIn("xla-cache")
    """XLA's programs, a folder for each arm, while the bench runs."""

    def run(self, order: int, arm: str, incarnation: int) -> Path:
        """The logs of one incarnation of an arm."""
        return self.path / "runs" / f"{order:03d}-{slug(arm)}-i{incarnation}"


def slug(name: str) -> str:
    """`name` as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "arm"


def printable(value: Any, longest: int = _LONGEST_TEXT) -> Any:
    """A JSON value whose texts any terminal and any table can show: on one line, without control characters.

    Texts of more than `longest` characters are shortened; different ones stay different.

    Raises:
        ValueError: nested too deeply.
    """
    try:
        return with_texts(value, partial(_printable, longest=longest))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _has_printable_texts(text: str) -> bool:
    """Whether `printable` would change nothing in a JSON text: it takes most of the time for a large record."""
    if not text.isprintable() or "\\" in text:
        return False
    return max(map(len, text.split('"')[1::2]), default=0) <= _LONGEST_TEXT


def _printable(text: str, longest: int) -> str:
    if not text.isprintable():
        text = " ".join(plain(text).encode(errors="replace").decode().split())
    if len(text) <= longest:
        return text
    return f"{text[: longest - 24]}... ({len(text):,}, {sha256(text.encode()).hexdigest()[:8]})"


@dataclass(frozen=True)
class Unreadable:
    """A file that could not be read, and why."""

    file: str
    reason: str


def read_lines(path: Path, read: Callable[[dict[str, Any]], T]) -> tuple[list[T], list[Unreadable]]:
    """What `read` makes of each line of a file of JSON objects about an arm, and the lines that it refuses.

    Their texts are `printable`. Once MOST_BAD lines were refused or empty, the rest is not read.
    """
    values: list[T] = []
    bad: list[Unreadable] = []
    number = left_out = 0
    try:
        for number, line in enumerate(read_json_lines(path), start=1):
            try:
                text = line.decode(errors="replace")
                value = parse_bounded(text.encode(), LARGEST_RECORD) if line else None
                if not _has_printable_texts(text):
                    value = printable(value)
                if isinstance(value, dict):
                    values.append(read({**value, "arm": printable(value.get("arm"), LONGEST_NAME)}))
                    continue
                reason = "incomplete record: no JSON object" if line else ""
            except json.JSONDecodeError:
                reason = "truncated, or not JSON"
            except (TfdistError, ValueError) as error:
                reason = printable(str(error))
            left_out += 1
            if left_out > MOST_BAD:
                bad.append(
                    Unreadable(f"{path.name}, line {number}", f"like {MOST_BAD} before it; the rest is not read")
                )
                break
            if reason:
                bad.append(Unreadable(f"{path.name}, line {number}", reason))
    except FileNotFoundError:
        pass
    except OSError as error:
        bad.append(Unreadable(path.name, str(error.strerror)))
    except ValueError as error:
        bad.append(Unreadable(f"{path.name}, line {number + 1}", str(error)))
    return values, bad


def read_bench(root: Path) -> BenchFile | None:
    """bench.json of a folder; None if it is missing.

    Raises:
        TfdistError: it is not readable, or of another format.
    """
    path = BenchPaths(root).bench
    try:
        data = load_json(path)
        form = data.get("format") if isinstance(data, dict) else None
        if form != FORMAT:
            raise TfdistError(f"{path} has format {shown(form)}: this tfdist reads format {FORMAT}")
        stored = from_json({**printable(data), "suite": {"arms": []}}, BenchFile)  # a suite has the keys of its TOML
        suite = parse_suite(from_json(data.get("suite"), dict[str, Any]), str(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise TfdistError(f"{path} cannot be read ({reason_of(error)}): start a new bench") from None
    return replace(stored, suite=suite)


@contextmanager
def only_writer(root: Path) -> Iterator[None]:
    """Create a folder of results, and let no other process measure into it.

    Raises:
        TfdistError: another one does, the folder cannot be created, or another user could exchange what is in it.
    """
    try:
        _check_safe(root, "--out")
        make_folder(str(root))
        folder = os.open(root, os.O_RDONLY)
    except OSError as error:
        raise TfdistError(f"cannot write to {root} ({error.strerror}): choose another --out") from None
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # another one: a file system without locks
            if isinstance(error, BlockingIOError):
                fix = "wait for its end, or choose another folder"
                raise TfdistError(f"{root}: another tfdist measures into it; {fix}") from None
        yield
    finally:
        os.close(folder)


def check_new(root: Path, fix: str) -> None:
    """Refuse a folder for new results that has files, or in which none can be created.

    Raises:
        TfdistError: with `fix` if it has files.
    """
    if root.is_dir() and any(root.iterdir()):
        raise TfdistError(f"--out {root} is not empty: {fix}")
    check_writable(root, "--out")


def check_writable(root: Path, option: str) -> None:
    """Refuse a folder in which no file can be created, or another user could exchange it; it may not exist yet.

    Raises:
        TfdistError: naming the option that gave the folder.
    """
    existing = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise TfdistError(f"{option} {root}: {existing} is a file; choose another folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise TfdistError(f"{option} {root}: {existing} is not writable; choose another folder")
    _check_safe(root, option)


def _check_safe(root: Path, option: str) -> None:
    reason = why_unsafe(str(root))  # it holds checkpoints and logs
    if reason:
        raise TfdistError(f"{option} {root}: {reason}, or choose another folder")
