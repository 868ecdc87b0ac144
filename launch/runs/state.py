"""The runs in a folder: list them, find one by its name, read its state from its files, and delete old ones."""

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypedDict

from tfdist.launch.agent_program.optional import CLOCK_BOOTTIME
from tfdist.launch.diagnosis.history import MOST_TEXT, Outcome, Status
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import LARGEST, LARGEST_JSON, load_json, read_json, reason_of
from tfdist.launch.redact import safe_text
from tfdist.launch.runs.launcher import Launcher, answering, answers, read_launcher
from tfdist.launch.runs.rundir import RunDir, is_ours
from tfdist.launch.str_enum import StrEnum
from tfdist.launch.text import did_you_mean, shortened
from tfdist.launch.typed_json import Seconds, from_json, with_texts

LAST = "last"
"""Stands for the newest run of this user."""
_LATEST = float(1 << 37)
"""Seconds since 1970 that `datetime` can hold."""
_MOST_CHARACTERS = 1 << 19
"""Characters of all different texts in a file."""
_STARTING_S = 60.0
"""A folder without any file counts as a run that starts for this long."""
_AHEAD_S = 60.0
"""A start this far in the future is that of another machine's clock."""


class RunState(StrEnum):
    """The state of a run. All but starting, running and lost are also statuses of an outcome."""

    STARTING = "starting"
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"
    """No task was started."""
    LOST = "lost"
    """The launcher ended without an outcome: it was killed, or the machine restarted."""
    UNREADABLE = "unreadable"
    """Its files cannot be read."""


@dataclass(frozen=True)
class Run:
    """One run and its state when it was read."""

    run_dir: RunDir
    state: RunState
    started: float
    """Seconds since 1970."""
    wall_s: float | None
    """Seconds that its tasks ran, until now if they run; None if unknown."""
    exit_code: int | None
    """None without an outcome."""
    reason: str
    culprit: str | None
    launcher: Launcher | None

    @property
    def name(self) -> str:
        """The name of its folder, to be shown."""
        return safe_text(self.run_dir.path.name)

    @property
    def ended(self) -> bool:
        """Whether nothing more will be written into its folder."""
        return self.state not in (RunState.STARTING, RunState.RUNNING)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "run_dir": str(self.run_dir.path),
            "state": str(self.state),
            "started": datetime.fromtimestamp(self.started, timezone.utc).isoformat(timespec="seconds"),
            "wall_s": None if self.wall_s is None else round(self.wall_s, 3),
            "exit_code": self.exit_code,
            "reason": self.reason,
            "culprit": self.culprit,
            "pid": self.launcher.pid if self.launcher else None,
            "host": self.launcher.host if self.launcher else None,
        }


class _OutcomeFields(TypedDict, total=False):
    """What all outcomes have, those of launches that were refused too. Anybody may have written the file."""

    status: Status | Literal["refused"]
    wall_s: Seconds
    exit_code: int
    reason: str
    culprit: str | None


def read_run(run_dir: RunDir) -> Run:
    """The run in a folder."""
    return _read(run_dir, answers)


def _read(run_dir: RunDir, listens: Callable[[RunDir], bool]) -> Run:
    """The run in a folder. `listens`: whether a launcher that the folder does not name listens on the run's socket."""
    ending = _ending(run_dir)
    launcher = read_launcher(run_dir)
    started = _started(run_dir, launcher)
    state = _state(run_dir, ending, launcher, started, listens)
    if state is RunState.LOST:
        ending = _ending(run_dir)
        if "status" in ending:  # it has written its outcome and ended since
            state = _state(run_dir, ending, launcher, started, listens)
    wall_s = ending.get("wall_s")
    remark = ""
    if state is RunState.RUNNING:
        wall_s = max(0.0, time.time() - started)
        if launcher is not None and not launcher.local:
            remark = f"on {launcher.host}; not checked from here"
    elif state is RunState.LOST:
        remark = "the launcher ended without an outcome"
    reason = safe_text(ending.get("reason", "")[:MOST_TEXT]) or remark
    culprit = safe_text((ending.get("culprit") or "")[:MOST_TEXT]) or None
    return Run(run_dir, state, started, wall_s, ending.get("exit_code"), reason, culprit, launcher)


def read_outcome(run_dir: RunDir) -> Outcome | None:
    """The outcome of a run; None if it has none yet, or if nothing was started."""
    with suppress(ValueError):
        values = from_json(read_json(run_dir.outcome), dict[str, Any]) | {"hosts": {}, "records": {}}
        return replace(from_json(_safe(values), Outcome), run_dir=str(run_dir.path))
    return None


def _safe(value: Any) -> Any:
    """A JSON value whose texts have no secrets and control characters.

    Raises:
        ValueError: they have too many characters. To look for secrets in a million takes up to 3 s.
    """
    left = _MOST_CHARACTERS

    @cache
    def safe(text: str) -> str:
        nonlocal left
        left -= len(text)
        if left < 0:
            raise ValueError(f"its texts have more than {_MOST_CHARACTERS:,} characters")
        return safe_text(text)

    return with_texts(value, safe)


class _TaskFields(TypedDict):
    task: str
    host: str


class _PlanFields(TypedDict):
    tasks: tuple[_TaskFields, ...]


def tasks_of(run_dir: RunDir) -> Mapping[str, str]:
    """Each task's host, in the order of the plan; empty before there is one."""
    with suppress(ValueError):
        plan = from_json(read_json(run_dir.cluster, LARGEST), _PlanFields)
        return dict(_safe([[each["task"], each["host"]] for each in plan["tasks"]]))
    return {}


def number_of_hosts(run_dir: RunDir) -> int:
    """Number of the hosts in the plan; 0 before there is one, or if it is too large for a list of many runs."""
    with suppress(ValueError):
        plan = from_json(read_json(run_dir.cluster, LARGEST_JSON), _PlanFields)
        return len({each["host"] for each in plan["tasks"]})
    return 0


def _ending(run_dir: RunDir) -> _OutcomeFields:
    """What outcome.json says; empty without one. Only the reason, why it cannot be read, if it is no file of ours."""
    try:
        ending = from_json(load_json(run_dir.outcome), _OutcomeFields)
        return ending if "status" in ending else _OutcomeFields(reason=_cannot_be_read(run_dir, "status is missing"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return _OutcomeFields(reason=_cannot_be_read(run_dir, reason_of(error)))


def _cannot_be_read(run_dir: RunDir, reason: str) -> str:
    return f"{run_dir.outcome.name} cannot be read: {reason}"


def _started(run_dir: RunDir, launcher: Launcher | None) -> float:
    started = launcher.started if launcher else run_dir.created or 0.0
    if not started:
        with suppress(OSError):
            started = run_dir.path.stat().st_mtime
    return min(max(started, 0.0), _LATEST)


def _state(
    run_dir: RunDir,
    ending: _OutcomeFields,
    launcher: Launcher | None,
    started: float,
    listens: Callable[[RunDir], bool],
) -> RunState:
    if "status" in ending:
        return RunState(ending["status"])
    if launcher.alive if launcher is not None else listens(run_dir):
        return RunState.RUNNING
    if ending:
        return RunState.UNREADABLE
    if launcher is None and abs(time.time() - started) < _STARTING_S:  # its clock may have been ahead
        return RunState.STARTING
    return RunState.LOST


def list_runs(runs_dir: Path) -> list[Run]:
    """All runs in a folder, the newest first. One that cannot be read is listed as such, beside the others."""
    runs = _read_all([RunDir(path) for path in _folders(runs_dir)])
    return sorted(runs, key=lambda run: (run.started, run.name), reverse=True)


def _read_all(run_dirs: Sequence[RunDir]) -> list[Run]:
    # a launcher that is suspended, or a stranger, does not answer: one after the other would take minutes
    listening = answering([each for each in run_dirs if _is_socket(each.control) and read_launcher(each) is None])
    return [_read_alone(each, listening.__contains__) for each in run_dirs]


def _read_alone(run_dir: RunDir, listens: Callable[[RunDir], bool]) -> Run:
    try:
        return _read(run_dir, listens)
    except Exception as error:  # whatever is in this folder, the others are listed
        return unreadable(Run(run_dir, RunState.UNREADABLE, _started(run_dir, None), None, None, "", None, None), error)


def unreadable(run: Run, error: Exception) -> Run:
    """The run, whose files could not be read because of `error`."""
    reason = safe_text(f"cannot be read: {reason_of(error)}"[:200])
    return replace(run, state=RunState.UNREADABLE, reason=reason)


def _is_socket(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(path.lstat().st_mode)
    return False


def find_run(text: str, runs_dir: Path, argument: str = "", *, others: bool = False) -> RunDir:
    """The run that `text` names: `last`, its folder's name or a unique part of it, or a path.

    `last` is the newest run of this user, and names are those of this user's runs: what another user puts beside them
    changes nothing. A run of another user is named by its path.

    Args:
        text: from the user.
        runs_dir: folder of the runs.
        argument: where `text` comes from, for messages; by default the argument RUN.
        others: a name that is none of this user's runs may be that of another user's, because it is only shown.

    Raises:
        TfdistError: there is no such run, or several.
    """
    if text == LAST:
        run = _newest([RunDir(path) for path in _folders(runs_dir) if is_ours(path)])
        if run is None:
            raise TfdistError(f"no runs {'of yours ' if _folders(runs_dir) else ''}in {runs_dir}: {_START}")
        return run.run_dir
    if "/" in text or not text:
        if text and _is_run(Path(text)):
            return RunDir(Path(text))
        raise TfdistError(f"{argument or f'RUN {text!r}'}: not the folder of a run; 'tfdist runs' lists the runs")
    return _find_named(text, runs_dir, argument or f"RUN {text}", others)


_START = "start one with 'tfdist launch', or give --runs-dir or the path of a run"


def _find_named(text: str, runs_dir: Path, argument: str, others: bool) -> RunDir:
    """The run with this name or a unique part of it, in the folder of the runs or the current one; as `find_run`."""
    here = Path(text)
    names = {path.name: is_ours(path) for path in _folders(runs_dir)}
    matches = _matches(text, [name for name, ours in names.items() if ours])
    if not matches and _is_run(here) and is_ours(here):
        return RunDir(here)
    strangers = [] if matches else _matches(text, [name for name, ours in names.items() if not ours])
    if others:
        matches = matches or strangers
    if len(matches) == 1:
        return RunDir(runs_dir / matches[0])
    if matches:
        raise TfdistError(
            f"{argument}: {len(matches)} runs match, {shortened(reversed(matches))}; give more of the name"
        )
    if _is_run(here) and others:
        return RunDir(here)
    raise _not_found(text, runs_dir, argument, strangers)


def _not_found(text: str, runs_dir: Path, argument: str, strangers: Sequence[str]) -> TfdistError:
    """Why no run of this user has this name; `strangers`: runs of other users that do."""
    paths = [f"{runs_dir}/{name}" for name in strangers]
    if not paths and _is_run(Path(text)):
        paths = [f"./{text}"]
    if paths:
        return TfdistError(f"{argument}: not a run of yours; give the path of another user's, {shortened(paths)}")
    names = sorted(path.name for path in _folders(runs_dir))
    if not names:
        return TfdistError(f"no runs in {runs_dir}: {_START}")
    hint = did_you_mean(text, names) if len(names) <= 4 else "'tfdist runs' lists them"
    return TfdistError(f"{argument}: no such run in {runs_dir}; {hint}")


def _folders(runs_dir: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in runs_dir.iterdir() if _is_run(path)]
    return []


def _matches(text: str, names: Iterable[str]) -> list[str]:
    """The names that are this text, else those that start with it, else those that contain it; sorted."""
    names = sorted(names)
    matches = [name for name in names if name == text] or [name for name in names if name.startswith(text)]
    return matches or [name for name in names if text in name]


def _newest(run_dirs: Sequence[RunDir]) -> Run | None:
    """The run that was started last; None if there is none.

    A start in the future is wrong: the clock was ahead then, or is behind now. Such a run counts by the clock that runs
    since boot; if it is of an earlier boot or another machine, as older than all others.
    """
    now = time.time()
    booted = time.time() - time.clock_gettime(CLOCK_BOOTTIME)

    def age(run: Run) -> tuple[bool, float, str]:
        started = run.started
        if started > now + _AHEAD_S and run.launcher is not None and run.launcher.this_boot:
            started = booted + run.launcher.ticks / os.sysconf("SC_CLK_TCK")
        return started <= now + _AHEAD_S, started, run.name

    return max(_read_all(run_dirs), key=age, default=None)


def _is_run(path: Path) -> bool:
    run_dir = RunDir(path)
    files = (run_dir.launcher, run_dir.outcome, run_dir.events, run_dir.spec)
    readable = os.access(path, os.R_OK | os.X_OK)  # a folder of somebody else is no run of ours
    return readable and path.is_dir() and (run_dir.created is not None or any(map(os.path.exists, files)))


@dataclass(frozen=True)
class OldRun:
    """A run that may be deleted."""

    run_dir: RunDir
    ended: float
    """When anything in its folder was changed last, seconds since 1970: another run may have saved there later."""
    size: int
    """Bytes of all files."""
    has_checkpoints: bool


def old_runs(runs_dir: Path, age_s: float, used: Collection[str] = ()) -> list[OldRun]:
    """This user's runs that ended more than `age_s` seconds ago, the oldest first.

    Left out are folders that `tfdist launch` did not make, links, runs of other users, and those that may still run.

    Args:
        runs_dir: the folder of all runs.
        age_s: smallest age.
        used: folders of checkpoints that trainings use; the runs that hold them are left out, too.
    """
    try:
        paths = sorted(runs_dir.iterdir())
    except OSError:
        return []
    real = [Path(os.path.realpath(folder)) for folder in used]  # resolve() fails for a link to itself
    in_use = {parent for folder in real for parent in (folder, *folder.parents)}
    runs = []
    for run_dir in map(RunDir, paths):
        if _is_deletable(run_dir) and run_dir.path.resolve() not in in_use:
            found = {run_dir.path: run_dir.path.lstat()}
            for parent, folders, files in os.walk(run_dir.path):
                found |= {Path(parent, name): Path(parent, name).lstat() for name in (*folders, *files)}
            ended = max(each.st_mtime for each in found.values())
            size = sum(each.st_size for each in found.values() if stat.S_ISREG(each.st_mode))
            has_checkpoints = any(path.parent == run_dir.checkpoints for path in found)
            runs.append(OldRun(run_dir, ended, size, has_checkpoints))
    return sorted((run for run in runs if time.time() - run.ended > age_s), key=lambda run: run.ended)


def delete(old: OldRun) -> None:
    """Delete the folder of a run, and no link's target: Linux' rmtree resists those that are planted meanwhile.

    Raises:
        OSError: some of it cannot be deleted.
    """
    if old.has_checkpoints:  # first: without outcome.json, the rest is not known as a run
        shutil.rmtree(old.run_dir.checkpoints)
    shutil.rmtree(old.run_dir.path)


def _is_deletable(run_dir: RunDir) -> bool:
    """Whether it is a run of this user that has ended."""
    is_folder = stat.S_ISDIR(run_dir.path.lstat().st_mode)  # no link
    if run_dir.created is None or not is_folder or not is_ours(run_dir.path):
        return False
    if not any(file.is_file() and not file.is_symlink() for file in (run_dir.outcome, run_dir.launcher)):
        return False
    run = read_run(run_dir)
    lives = run.launcher is not None and run.launcher.local and run.launcher.alive
    return run.ended and not lives
