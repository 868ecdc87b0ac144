"""The runs in a folder: find one by its name, list them, tell how each ended."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tfdist.launch.agents.messages import Exited
from tfdist.launch.diagnose import Outcome, Status
from tfdist.launch.errors import TfdistError
from tfdist.launch.launcher import Launcher, read_launcher
from tfdist.launch.run_state import RunState
from tfdist.launch.rundir import RunDir
from tfdist.launch.text import did_you_mean, shortened

LAST = "last"
"""Stands for the newest run."""
_STARTING_S = 60.0
"""A folder without any file counts as a run that starts for this long."""
_STAMP = re.compile(r"(\d{8}T\d{6}Z)-")


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
        """The name of its folder."""
        return self.run_dir.path.name

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


def read_run(run_dir: RunDir) -> Run:
    """The run in a folder."""
    outcome, launcher = _read(run_dir.outcome), read_launcher(run_dir)
    started = launcher.started if launcher else _started(run_dir.path)
    state, wall_s = _state(run_dir, outcome, launcher, started), outcome.get("wall_s")
    if state is RunState.RUNNING:
        wall_s = max(0.0, time.time() - started)
    return Run(
        run_dir=run_dir,
        state=state,
        started=started,
        wall_s=wall_s,
        exit_code=outcome.get("exit_code"),
        reason=str(outcome.get("reason", "")) or _remark(state, launcher),
        culprit=outcome.get("culprit"),
        launcher=launcher,
    )


def list_runs(runs_dir: Path) -> list[Run]:
    """All runs in a folder, the newest first."""
    try:
        folders = [RunDir(path) for path in runs_dir.iterdir() if _is_run(path)]
    except OSError:
        return []
    return sorted(map(read_run, folders), key=lambda run: (run.started, run.name), reverse=True)


def find_run(text: str, runs_dir: Path) -> RunDir:
    """The run that `text` names: `last`, its folder's name or a unique part of it, or a path.

    Raises:
        TfdistError: there is no such run, or several.
    """
    if text == LAST:
        return _newest(runs_dir)
    if "/" in text or not text:
        if text and Path(text).is_dir():
            return RunDir(Path(text))
        raise TfdistError(f"RUN {text!r}: no such folder; 'tfdist runs' lists the runs")
    names = sorted(run.name for run in list_runs(runs_dir))
    matches = [name for name in names if name == text] or [name for name in names if name.startswith(text)]
    matches = matches or [name for name in names if text in name]
    if len(matches) == 1:
        return RunDir(runs_dir / matches[0])
    if matches:
        raise TfdistError(
            f"RUN {text}: {len(matches)} runs match, {shortened(reversed(matches))}; give more of the name"
        )
    if _is_run(Path(text)):
        return RunDir(Path(text))
    if not names:
        raise _no_runs(runs_dir)
    hint = did_you_mean(text, names) if len(names) <= 4 else "'tfdist runs' lists them"
    raise TfdistError(f"RUN {text}: no such run in {runs_dir}; {hint}")


def read_outcome(run_dir: RunDir) -> Outcome | None:
    """The outcome of a run; None if it has none yet, or if nothing was started."""
    values = _read(run_dir.outcome)
    try:
        known = {field.name: _plain(values[field.name]) for field in fields(Outcome) if field.name in values}
        exits = {task: Exited(**exit) for task, exit in known.pop("exits", {}).items()}
        return Outcome(**{**known, "status": Status(known["status"]), "exits": exits, "run_dir": str(run_dir.path)})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def tasks_of(run_dir: RunDir) -> Mapping[str, str]:
    """Each task's host, in the order of the plan; empty before there is a plan."""
    try:
        plans = json.loads(run_dir.cluster.read_text(encoding="utf-8"))
        return {str(plan["task"]): str(plan["host"]) for plan in plans}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _newest(runs_dir: Path) -> RunDir:
    runs = list_runs(runs_dir)
    if not runs:
        raise _no_runs(runs_dir)
    return runs[0].run_dir


def _no_runs(runs_dir: Path) -> TfdistError:
    return TfdistError(
        f"no runs in {runs_dir}: start one with 'tfdist launch', or give --runs-dir or the path of a run"
    )


def _is_run(path: Path) -> bool:
    run_dir = RunDir(path)
    files = (run_dir.launcher, run_dir.outcome, run_dir.events, run_dir.spec)
    return path.is_dir() and (bool(_STAMP.match(path.name)) or any(file.exists() for file in files))


def _state(run_dir: RunDir, outcome: Mapping[str, Any], launcher: Launcher | None, started: float) -> RunState:
    if outcome:
        return RunState(outcome["status"]) if outcome.get("status") in set(RunState) else RunState.FAILED
    if launcher is not None and launcher.alive:
        return RunState.RUNNING
    if launcher is None and time.time() - started < _STARTING_S:
        return RunState.STARTING
    return RunState.LOST


def _remark(state: RunState, launcher: Launcher | None) -> str:
    if state is RunState.LOST:
        return "the launcher ended without an outcome"
    if state is RunState.RUNNING and launcher is not None and not launcher.here:
        return f"on {launcher.host}; not checked from here"
    return ""


def _started(path: Path) -> float:
    stamp = _STAMP.match(path.name)
    if stamp:
        return datetime.strptime(stamp[1], "%Y%m%dT%H%M%S%z").timestamp()
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(path: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
