"""The runs in a folder: list them, and find one by its name."""

from pathlib import Path

from tfdist.launch.errors import TfdistError
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import Run, read_run
from tfdist.launch.text import did_you_mean, shortened

LAST = "last"
"""Stands for the newest run."""


def list_runs(runs_dir: Path) -> list[Run]:
    """All runs in a folder, the newest first."""
    try:
        folders = [RunDir(path) for path in runs_dir.iterdir() if _is_run(path)]
    except OSError:
        return []
    return sorted(map(read_run, folders), key=lambda run: (run.started, run.name), reverse=True)


def find_run(text: str, runs_dir: Path, argument: str = "") -> RunDir:
    """The run that `text` names: `last`, its folder's name or a unique part of it, or a path.

    Args:
        text: from the user.
        runs_dir: folder of the runs.
        argument: where `text` comes from, for messages; by default the argument RUN.

    Raises:
        TfdistError: there is no such run, or several.
    """
    if text == LAST:
        return _newest(runs_dir)
    if "/" in text or not text:
        if text and _is_run(Path(text)):
            return RunDir(Path(text))
        raise TfdistError(f"{argument or f'RUN {text!r}'}: not the folder of a run; 'tfdist runs' lists the runs")
    argument = argument or f"RUN {text}"
    names = sorted(run.run_dir.path.name for run in list_runs(runs_dir))
    matches = [name for name in names if name == text] or [name for name in names if name.startswith(text)]
    matches = matches or [name for name in names if text in name]
    if len(matches) == 1:
        return RunDir(runs_dir / matches[0])
    if matches:
        raise TfdistError(
            f"{argument}: {len(matches)} runs match, {shortened(reversed(matches))}; give more of the name"
        )
    if _is_run(Path(text)):
        return RunDir(Path(text))
    if not names:
        raise _no_runs(runs_dir)
    hint = did_you_mean(text, names) if len(names) <= 4 else "'tfdist runs' lists them"
    raise TfdistError(f"{argument}: no such run in {runs_dir}; {hint}")


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
    return path.is_dir() and (run_dir.created is not None or any(file.exists() for file in files))
