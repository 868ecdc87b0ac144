"""Which runs are old, in folders that tests write."""

import os
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tfdist.launch.json_files import save_json
from tfdist.launch.runs.launcher import this_launcher
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import delete, old_runs

DAY_S = 86400.0
NAME = "20260101T120000Z-launch"


def set_age(folder, age_s):
    """Make everything in a folder this old."""
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (time.time() - age_s,) * 2, follow_symlinks=False)


def keep(folder, age_s=40 * DAY_S, status="ok"):
    """The folder of a run that ended so long ago, of 1003 bytes besides its outcome."""
    run_dir = RunDir(folder)
    log = run_dir.log("worker-0", "stdout")
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * 1003)
    save_json(run_dir.outcome, {"format": 1, "status": status})
    set_age(folder, age_s)
    return run_dir


def names(runs_dir, used=()):
    return [old.run_dir.path.name for old in old_runs(runs_dir, 30 * DAY_S, used)]


def test_runs_that_ended_long_ago_are_found_with_their_sizes_the_oldest_first(tmp_path):
    keep(tmp_path / f"{NAME}-a")
    keep(tmp_path / f"{NAME}-b", 50 * DAY_S, "failed")
    keep(tmp_path / f"{NAME}-c", 29 * DAY_S)
    second, first = old_runs(tmp_path, 30 * DAY_S)[::-1]
    assert [old.run_dir.path.name[-1] for old in (first, second)] == ["b", "a"]
    assert second.ended == pytest.approx(time.time() - 40 * DAY_S, abs=60)
    assert second.size == 1003 + second.run_dir.outcome.stat().st_size
    assert not second.has_checkpoints


def test_a_run_whose_checkpoints_cannot_be_deleted_is_found_again(tmp_path, monkeypatch):
    run_dir = keep(tmp_path / NAME)
    run_dir.checkpoints.mkdir()
    (run_dir.checkpoints / "checkpoint").touch()
    set_age(run_dir.path, 40 * DAY_S)
    (old,) = old_runs(tmp_path, 30 * DAY_S)
    remove = os.unlink

    def refuse(path, **options):
        if Path(path).name == "checkpoint":
            raise PermissionError(13, "Permission denied", path)
        remove(path, **options)

    scan = os.scandir
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        patch.setattr(os, "scandir", lambda path: nullcontext(sorted(scan(path), key=lambda one: one.name)[::-1]))
        with pytest.raises(PermissionError):
            delete(old)
    set_age(run_dir.path, 40 * DAY_S)
    assert names(tmp_path) == [NAME]


def test_checkpoints_are_noticed(tmp_path):
    run_dir = keep(tmp_path / NAME)
    run_dir.checkpoints.mkdir()
    (run_dir.checkpoints / "ckpt-1").write_bytes(b"weights")
    assert names(tmp_path) == []  # it was changed just now
    set_age(run_dir.path, 40 * DAY_S)
    assert [old.has_checkpoints for old in old_runs(tmp_path, 30 * DAY_S)] == [True]


def test_a_run_that_runs_or_whose_launcher_does_is_kept(tmp_path):
    for name, outcome in ((f"{NAME}-1", False), (f"{NAME}-2", True)):
        run_dir = keep(tmp_path / name)
        save_json(run_dir.launcher, this_launcher().to_json())
        if not outcome:
            run_dir.outcome.unlink()
        set_age(run_dir.path, 40 * DAY_S)
    assert names(tmp_path) == []


def test_a_run_whose_launcher_was_killed_is_found(tmp_path):
    run_dir = keep(tmp_path / NAME)
    run_dir.outcome.unlink()
    save_json(run_dir.launcher, {**this_launcher().to_json(), "ticks": 1})
    set_age(run_dir.path, 40 * DAY_S)
    assert names(tmp_path) == [NAME]


def test_a_run_whose_checkpoints_another_one_uses_is_kept(tmp_path, monkeypatch):
    run_dir = keep(tmp_path / NAME)
    assert names(tmp_path, [str(run_dir.checkpoints)]) == []
    assert names(tmp_path, [str(tmp_path / "other"), "gs://bucket/checkpoints"]) == [NAME]
    monkeypatch.chdir(tmp_path.parent)
    assert names(tmp_path.relative_to(tmp_path.parent), [str(run_dir.checkpoints)]) == []


def test_what_is_no_run_or_a_link_to_one_is_kept(tmp_path):
    elsewhere, runs_dir = keep(tmp_path / "elsewhere" / NAME), tmp_path / "runs"
    runs_dir.mkdir()
    (runs_dir / f"{NAME}-link").symlink_to(elsewhere.path)
    keep(runs_dir / "photos")  # without a time in its name
    keep(runs_dir / f"{NAME}-photos").outcome.unlink()
    (runs_dir / f"{NAME}-file").write_text("")
    keep(runs_dir / f"{NAME}-linked").outcome.unlink()
    (runs_dir / f"{NAME}-linked/outcome.json").symlink_to(elsewhere.outcome)
    for path in runs_dir.iterdir():
        set_age(path, 40 * DAY_S)
    assert names(runs_dir) == []


def test_a_run_of_another_user_is_kept(tmp_path, monkeypatch):
    keep(tmp_path / NAME)
    assert names(tmp_path) == [NAME]
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert names(tmp_path) == []


def test_deleting_follows_no_link(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    run_dir = keep(tmp_path / "runs" / NAME)
    (run_dir.path / "link").symlink_to(precious)
    set_age(run_dir.path, 40 * DAY_S)
    (old,) = old_runs(tmp_path / "runs", 30 * DAY_S)
    delete(old)
    assert not run_dir.path.exists()
    keep(run_dir.path)
    run_dir.path.rename(tmp_path / "moved")
    run_dir.path.symlink_to(precious)
    with pytest.raises(OSError, match="symbolic link"):
        delete(old)
    assert (precious / "file").read_text() == "x"
