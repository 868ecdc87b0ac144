"""Runs that ended long ago: find them, and delete them."""

import os
import shutil
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import read_run


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
    in_use = {parent for folder in used for parent in (Path(folder).resolve(), *Path(folder).resolve().parents)}
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
    shutil.rmtree(old.run_dir.path)


def _is_deletable(run_dir: RunDir) -> bool:
    """Whether it is a run of this user that has ended."""
    folder = run_dir.path.lstat()
    if run_dir.created is None or not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.geteuid():
        return False
    if not any(file.is_file() and not file.is_symlink() for file in (run_dir.outcome, run_dir.launcher)):
        return False
    run = read_run(run_dir)
    lives = run.launcher is not None and run.launcher.local and run.launcher.alive
    return run.ended and not lives
