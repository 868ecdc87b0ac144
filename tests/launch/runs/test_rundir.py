import os
import stat
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.users import GROUP, LEADER, OTHER, US, as_user, make, needs_root, public_folder
from tfdist.launch.agents.messages import Output, Started
from tfdist.launch.errors import TfdistError
from tfdist.launch.runs.rundir import RunDir, check_runs_dir, create_run_dir, open_folder
from tfdist.launch.runs.writer import RunWriter

public = pytest.fixture(public_folder)
NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=timezone.utc)


def test_two_runs_in_the_same_second_get_two_folders(tmp_path):
    first, second = (create_run_dir(tmp_path / "it's; new", "my run", NOON) for _ in range(2))
    assert first.path.name == "20260102T120000Z-my-run"
    assert second.path.name == "20260102T120000Z-my-run-2"


@pytest.mark.parametrize(("name", "folder"), [("../../x", "x"), ("a/b", "a-b"), ("", "run"), (";$HOME", "HOME")])
def test_a_name_cannot_escape_the_runs_folder(tmp_path, name, folder):
    path = create_run_dir(tmp_path, name, NOON).path
    assert path.parent == tmp_path
    assert path.name.endswith(f"Z-{folder}")


def test_the_time_of_a_run_is_in_the_name_of_its_folder(tmp_path):
    assert create_run_dir(tmp_path, "a-b", NOON).created == NOON.timestamp()
    assert RunDir(tmp_path / "results").created is None


def test_the_attempts_of_a_run_are_sorted(tmp_path):
    run_dir = RunDir(tmp_path)
    for task, attempt in (("worker-0", 10), ("worker-1", 0), ("worker-0", 2)):
        run_dir.log(task, "stdout", attempt).parent.mkdir(parents=True)
    assert run_dir.attempts() == [(0, "worker-1"), (2, "worker-0"), (10, "worker-0")]


def test_stacks_are_beside_the_logs_of_their_attempt():
    run_dir = RunDir(Path("/runs/a"))
    assert run_dir.log("worker-0", "stdout", 2) == Path("/runs/a/attempt-2/worker-0/stdout.log")
    assert run_dir.log("worker-0", "stacks", 2) == Path("/runs/a/attempt-2/worker-0/stacks.txt")


def test_a_file_as_runs_folder_is_refused(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(TfdistError, match="--runs-dir"):
        create_run_dir(tmp_path / "runs", "x")
    with pytest.raises(TfdistError, match="--runs-dir"):
        create_run_dir(tmp_path / "runs" / "below", "x")


def test_a_run_is_for_its_user_only_even_under_a_permissive_umask(tmp_path):
    before = os.umask(0)
    try:
        runs = tmp_path / "runs"
        run_dir = create_run_dir(runs, "x")
        with RunWriter(run_dir) as writer:
            writer.save(run_dir.cluster, {})
            writer.save_text(run_dir.commands, "tfdist")
            writer.write(Output("worker-0", "stdout", "x\n"))
            writer.write(Started("worker-0", 1, 0.0))
            writer.save_outcome({})
    finally:
        os.umask(before)
    assert stat.S_IMODE(run_dir.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(runs.stat().st_mode) == 0o775  # the umask decides, but for others
    files = [path for path in run_dir.path.rglob("*") if path.is_file()]
    assert len(files) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_runs_folder_that_every_user_may_write_to_is_refused(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    runs.chmod(0o777)
    with pytest.raises(TfdistError, match=r"runs: every user may rename what is in .*runs; run 'chmod o-w'"):
        create_run_dir(runs, "x")
    assert list(runs.iterdir()) == []


@pytest.mark.parametrize("mode", [0o1777, 0o2775, 0o770])
def test_a_sticky_or_a_groups_folder_holds_runs(mode, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    runs.chmod(mode)
    assert create_run_dir(runs, "x").path.stat().st_mode & 0o777 == 0o700


def test_folders_that_are_no_attempts_are_left_out(tmp_path):
    for name in ("attempt-0/worker-0", "attempt-x/worker-0", "attempt-²/worker-0", f"attempt-{'9' * 200}/worker-0"):
        (tmp_path / name).mkdir(parents=True)
    assert RunDir(tmp_path).attempts() == [(0, "worker-0")]


def test_the_attempts_of_one_task(tmp_path):
    for name in ("attempt-0/worker-1", "attempt-2/worker-1", "attempt-10/worker-[1]", "attempt-1/worker-10"):
        (tmp_path / name).mkdir(parents=True)
    assert RunDir(tmp_path).attempts("worker-1") == [(0, "worker-1"), (2, "worker-1")]
    assert RunDir(tmp_path).attempts("worker-[1]") == [(10, "worker-[1]")]


@needs_root
def test_a_runs_folder_of_another_user_is_refused(public):
    runs = make(make(public / "theirs", OTHER, 0o1777) / "runs", US, 0o700)

    def refusal():
        with pytest.raises(TfdistError) as refused:
            create_run_dir(runs, "x")
        with pytest.raises(PermissionError):
            open_folder(runs)
        return str(refused.value), refused.value.exit_code

    text, code = as_user(US, refusal)
    assert text.startswith(f"--runs-dir {runs}: {runs.parent} belongs to user 1235, who may rename what is in it; ")
    assert text.endswith(", or choose another one")
    assert (code, list(runs.iterdir())) == (2, [])


@needs_root
def test_the_runs_folder_of_a_project_is_used(public):
    runs = make(public / "project", LEADER, 0o2770, GROUP) / "runs"
    path = as_user(US, lambda: create_run_dir(runs, "x").path, (GROUP,))
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (US, 0o700)


def test_parents_are_created_for_us_only_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        create_run_dir(tmp_path / "a" / "runs", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o775
    check_runs_dir(tmp_path / "a" / "runs")
