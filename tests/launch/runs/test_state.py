"""The state of runs in folders that tests write, and in those of real launches."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.launch.jobs import python_job, run
from tests.users import OTHER, needs_root
from tfdist.launch.agents.inbox import Inbox
from tfdist.launch.diagnosis.history import Status
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import save_json
from tfdist.launch.runs.launcher import Launcher, read_launcher, serve, this_launcher
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import RunState, find_run, list_runs, number_of_hosts, read_outcome, read_run, tasks_of

EARLY, LATE = "20260101T120000Z-launch", "20260102T120000Z-mine"


@pytest.fixture
def runs_dir(tmp_path):
    for name in (EARLY, LATE, f"{LATE}-2"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        save_json(folder / "outcome.json", {"format": 1, "status": "ok", "exit_code": 0, "reason": "", "wall_s": 2.5})
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("last", f"{LATE}-2"),
        (EARLY, EARLY),
        (LATE, LATE),
        ("20260101", EARLY),
        ("mine-2", f"{LATE}-2"),
        ("launch", EARLY),
    ],
)
def test_a_run_is_found_by_its_name_or_a_unique_part_of_it(text, name, runs_dir):
    assert find_run(text, runs_dir).path == runs_dir / name


def test_folders_of_others_are_no_runs(runs_dir, monkeypatch):
    (runs_dir / "lost+found").mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: path.name not in ("lost+found", LATE))
    assert [run.name for run in list_runs(runs_dir)] == [f"{LATE}-2", EARLY]


def test_a_run_is_found_by_its_path(runs_dir, monkeypatch):
    assert find_run(str(runs_dir / EARLY), runs_dir.parent / "none").path == runs_dir / EARLY
    monkeypatch.chdir(runs_dir)
    assert find_run(EARLY, runs_dir / "runs").path.resolve() == runs_dir / EARLY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2026", f"RUN 2026: 3 runs match, {LATE}-2, {LATE}, {EARLY}; give more of the name"),
        ("lunch", "RUN lunch: no such run in "),
        ("/no/such", "RUN '/no/such': not the folder of a run; 'tfdist runs' lists the runs"),
        ("/", "RUN '/': not the folder of a run; 'tfdist runs' lists the runs"),
        ("", "RUN '': not the folder of a run"),
    ],
)
def test_an_unknown_or_ambiguous_name_is_refused(text, message, runs_dir):
    with pytest.raises(TfdistError) as refused:
        find_run(text, runs_dir)
    assert str(refused.value).startswith(message)
    assert refused.value.exit_code == 2


FUTURE = "20990101T120000Z-mine-3"


@pytest.fixture
def shared(runs_dir):
    """The folder of the runs, to which another user has added one that claims a start in the future."""
    planted = runs_dir / FUTURE
    planted.mkdir()
    claimed = replace(this_launcher(), started=time.time() + 1e8)
    save_json(planted / "launcher.json", claimed.to_json())
    save_json(planted / "outcome.json", {"format": 1, "status": "ok", "exit_code": 0, "reason": "", "wall_s": 2.5})
    os.chown(planted, OTHER, OTHER)
    return runs_dir


@needs_root
@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize(
    ("text", "left", "name"),
    [
        ("last", (EARLY, LATE), LATE),
        ("mine", (EARLY, LATE), LATE),  # the other one's name has the same part
        ("20", (EARLY,), EARLY),  # and the same beginning
    ],
)
def test_a_folder_of_another_user_captures_neither_last_nor_a_name(text, left, name, others, shared):
    for gone in {EARLY, LATE, f"{LATE}-2"} - {*left}:
        shutil.rmtree(shared / gone)
    assert find_run(text, shared, others=others).path == shared / name


@needs_root
def test_a_run_of_another_user_is_named_by_its_path_except_to_look_at_it(shared, monkeypatch):
    for text in ("mine-3", FUTURE, "2099"):
        with pytest.raises(TfdistError) as refused:
            find_run(text, shared, "--resume x")
        sentence = f"--resume x: not a run of yours; give the path of another user's, {shared}/{FUTURE}"
        assert (str(refused.value), refused.value.exit_code) == (sentence, 2)
        assert find_run(text, shared, others=True).path == shared / FUTURE
    assert find_run(f"{shared}/{FUTURE}", shared).path == shared / FUTURE
    monkeypatch.chdir(shared)
    with pytest.raises(TfdistError, match=rf"not a run of yours; give the path of another user's, \./{FUTURE}$"):
        find_run(FUTURE, shared / "none")
    assert find_run(FUTURE, shared / "none", others=True).path.resolve() == shared / FUTURE


@needs_root
def test_a_link_of_another_user_to_a_run_of_ours_is_not_ours(runs_dir):
    link = runs_dir / FUTURE
    link.symlink_to(runs_dir / EARLY)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    assert find_run("last", runs_dir).path == runs_dir / f"{LATE}-2"


@needs_root
def test_where_all_runs_are_those_of_others_there_is_no_last_one(shared):
    for name in (EARLY, LATE, f"{LATE}-2"):
        shutil.rmtree(shared / name)
    with pytest.raises(TfdistError, match=r"no runs of yours in .*: start one with 'tfdist launch'"):
        find_run("last", shared, others=True)


@pytest.mark.parametrize(
    ("launcher", "last"),
    [
        ({}, EARLY),  # it was started while the clock was ahead, just now
        ({"boot": "an earlier one"}, LATE),
        ({"boot": "that of another machine", "host": "h2"}, LATE),
    ],
)
def test_a_run_that_was_started_while_the_clock_was_ahead_is_as_old_as_can_be_known(launcher, last, runs_dir):
    shutil.rmtree(runs_dir / f"{LATE}-2")
    ahead = replace(this_launcher(), started=time.time() + 1e8, **launcher)
    save_json(runs_dir / EARLY / "launcher.json", ahead.to_json())
    assert find_run("last", runs_dir).path == runs_dir / last


def test_without_runs_there_is_no_last_one(tmp_path):
    for text in ("last", "x"):
        with pytest.raises(TfdistError, match=r"no runs in .*: start one with 'tfdist launch'"):
            find_run(text, tmp_path / "runs")


def test_the_newest_run_comes_first(runs_dir):
    assert [run.name for run in list_runs(runs_dir)] == [f"{LATE}-2", LATE, EARLY]
    (runs_dir / "notes").mkdir()
    assert len(list_runs(runs_dir)) == 3


def test_the_state_of_a_finished_job_is_that_of_its_outcome(tmp_path):
    outcome, _ = run(python_job("import sys; sys.exit('why')", {"worker": 2}), tmp_path)
    found = read_run(RunDir(tmp_path))
    assert (found.state, found.exit_code, found.reason, found.culprit) == (
        RunState.FAILED,
        1,
        outcome.reason,
        outcome.culprit,
    )
    assert found.ended
    again = read_outcome(RunDir(tmp_path))
    assert again == replace(outcome, casualties=dict(outcome.casualties), hosts=again.hosts)
    assert again.status is Status.FAILED
    assert list(tasks_of(RunDir(tmp_path))) == ["worker-0", "worker-1"]
    assert number_of_hosts(RunDir(tmp_path)) == 1


def test_a_run_without_an_outcome_runs_as_long_as_its_launcher(tmp_path):
    run_dir = RunDir(tmp_path)
    save_json(run_dir.launcher, this_launcher().to_json())
    found = read_run(run_dir)
    assert (found.state, found.ended, found.launcher.pid) == (RunState.RUNNING, False, os.getpid())
    assert found.wall_s < 60


def test_a_run_is_lost_if_its_launcher_is_gone(tmp_path):
    run_dir = RunDir(tmp_path)
    code = (
        "import sys; from pathlib import Path; from tfdist.launch.runs.launcher import *; from tfdist.launch.json_files import save_json\n"
        "save_json(RunDir(Path(sys.argv[1])).launcher, this_launcher().to_json())"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert read_run(run_dir).state is RunState.LOST
    assert read_run(run_dir).reason == "the launcher ended without an outcome"


def test_a_launcher_that_ends_while_its_run_is_read_is_not_lost(tmp_path, monkeypatch):
    run_dir = RunDir(tmp_path)
    save_json(run_dir.launcher, this_launcher().to_json())

    def ends(launcher):
        save_json(run_dir.outcome, {"status": "ok", "exit_code": 0, "wall_s": 1.0, "reason": ""})
        return False

    monkeypatch.setattr(Launcher, "alive", property(ends))
    found = read_run(run_dir)
    assert (found.state, found.exit_code, found.reason) == (RunState.OK, 0, "")


@pytest.mark.parametrize("change", [{"ticks": 1}, {"boot": "another"}])
def test_a_pid_that_was_given_to_another_process_is_not_the_launcher(change, tmp_path):
    run_dir = RunDir(tmp_path)
    save_json(run_dir.launcher, replace(this_launcher(), **change).to_json())
    assert read_run(run_dir).state is RunState.LOST


def test_a_launcher_on_another_machine_counts_as_running(tmp_path):
    run_dir = RunDir(tmp_path)
    save_json(run_dir.launcher, replace(this_launcher(), host=f"not-{socket.gethostname()}", pid=1, ticks=1).to_json())
    found = read_run(run_dir)
    assert found.state is RunState.RUNNING
    assert found.reason == f"on not-{socket.gethostname()}; not checked from here"


def test_a_run_without_any_file_runs_as_long_as_its_launcher_answers(tmp_path):
    run_dir = RunDir(tmp_path / "20260101T120000Z-launch")
    run_dir.path.mkdir()
    with serve(run_dir, Inbox(), list):
        assert read_run(run_dir).state is RunState.RUNNING
    assert read_run(run_dir).state is RunState.LOST


def test_a_launcher_that_is_suspended_still_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("tfdist.launch.runs.launcher.ANSWER_S", 0.1)
    run_dir = RunDir(tmp_path / "20260101T120000Z-launch")
    run_dir.path.mkdir()
    with socket.socket(socket.AF_UNIX) as suspended:
        monkeypatch.chdir(run_dir.path)
        suspended.bind(run_dir.control.name)
        suspended.listen()
        assert read_run(run_dir).state is RunState.RUNNING


def test_a_new_empty_folder_starts_and_an_old_one_is_lost(tmp_path):
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    (tmp_path / f"{stamp}-a").mkdir()
    (tmp_path / "20260101T120000Z-launch").mkdir()
    assert [run.state for run in list_runs(tmp_path)] == [RunState.STARTING, RunState.LOST]
    (tmp_path / "29990101T120000Z-launch").mkdir()  # the clock was ahead
    assert list_runs(tmp_path)[0].state is RunState.LOST


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"status": "new", "format": 1}'])
def test_files_that_cannot_be_read_are_no_error(text, tmp_path):
    run_dir = RunDir(tmp_path)
    for path in (run_dir.outcome, run_dir.launcher, run_dir.cluster):
        path.write_text(text)
    assert json.dumps(read_run(run_dir).to_json())
    assert read_launcher(run_dir) is None
    assert read_outcome(run_dir) is None
    assert (tasks_of(run_dir), number_of_hosts(run_dir)) == ({}, 0)


# --- files that anybody may have written


@pytest.mark.parametrize(
    "text",
    [
        '{"status": "ok", "exit_code": 0, "wall_s": "abc"}',
        '{"status": "ok", "exit_code": 0, "reason": 5}',
        '{"status": [], "wall_s": 1e999}',
        "[" * 200_000,
        "[]",
    ],
)
def test_a_broken_outcome_does_not_hide_the_other_runs(text, tmp_path):
    for name in ("20260101T120000Z-good", "20260101T120001Z-broken"):
        (tmp_path / name).mkdir()
    save_json(tmp_path / "20260101T120000Z-good" / "outcome.json", {"status": "ok", "exit_code": 0, "wall_s": 1.0})
    (tmp_path / "20260101T120001Z-broken" / "outcome.json").write_text(text)
    broken, good = list_runs(tmp_path)
    assert (good.state, good.wall_s) == (RunState.OK, 1.0)
    assert broken.ended
    assert read_outcome(broken.run_dir) is None
    assert isinstance(broken.to_json()["reason"], str)


@pytest.mark.parametrize("name", ["launcher.json", "outcome.json", "cluster.json"])
def test_a_fifo_or_a_huge_file_is_not_read(name, tmp_path):
    run_dir = RunDir(tmp_path / "20260101T120000Z-x")
    run_dir.path.mkdir()
    os.mkfifo(run_dir.path / name)
    expected = RunState.UNREADABLE if name == "outcome.json" else RunState.LOST
    assert read_run(run_dir).state is expected
    assert tasks_of(run_dir) == {}
    (run_dir.path / name).unlink()
    with (run_dir.path / name).open("wb") as file:
        file.truncate(1 << 40)
    assert read_run(run_dir).state is expected


def test_escapes_in_a_runs_files_are_not_shown(tmp_path):
    run_dir = RunDir(tmp_path / "20260101T120000Z-\x1b[31m")
    hostile = "a\x1b]0;title\x07b"
    save_json(run_dir.launcher, replace(this_launcher(), host=hostile).to_json())
    save_json(run_dir.cluster, {"tasks": [{"task": hostile, "host": hostile}]})
    found = read_run(run_dir)
    assert (found.name, found.launcher.host) == ("20260101T120000Z-", "ab")
    assert tasks_of(run_dir) == {"ab": "ab"}
    save_json(
        run_dir.outcome,
        {
            "status": "failed",
            "exit_code": 1,
            "reason": hostile,
            "culprit": hostile,
            "hints": [hostile],
            "log": [hostile],
        },
    )
    assert (read_run(run_dir).reason, read_run(run_dir).culprit) == ("ab", "ab")
    assert (read_outcome(run_dir).hints, read_outcome(run_dir).log) == (("ab",), ("ab",))


def test_launchers_that_do_not_answer_are_asked_at_the_same_time(tmp_path):
    with ExitStack() as stack:
        for number in range(20):
            run_dir = RunDir(tmp_path / f"20260101T1200{number:02}Z-x")
            run_dir.path.mkdir()
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(run_dir.control))
            listener.listen()
        started = time.monotonic()
        assert [run.state for run in list_runs(tmp_path)] == [RunState.RUNNING] * 20
        assert time.monotonic() - started < 4  # one after the other: 20 s


def test_an_outcome_that_is_too_large_is_not_read(tmp_path):
    run_dir = RunDir(tmp_path / "20260101T120000Z-x")
    run_dir.path.mkdir()
    run_dir.outcome.write_text('{"status": "ok", "a": "' + "x" * (9 << 20) + '"}')
    (found,) = list_runs(tmp_path)
    assert (found.state, found.reason) == (RunState.UNREADABLE, "outcome.json cannot be read: larger than 8 MiB")
