"""Runs in the background, as a user sees them: real terminals, one of which is closed."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tfdist.cli.command import run
from tfdist.launch.json_files import save_json
from tfdist.launch.runs.launcher import read_launcher, this_launcher
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import read_run

from .terminal import Terminal

TFDIST = [sys.executable, "-m", "tfdist.cli"]
COUNT = "n=0; while [ ! -e stop ]; do n=$((n+1)); echo count $n; sleep 0.2; done; echo finished"
COUNTING = ["launch", "--strategy", "multiworker", "--", "sh", "-c", COUNT]
TINY = ["--preset", "smoke", "--model", "tiny"]


@pytest.fixture
def folder(odd_folder):
    return odd_folder


def tfdist(*arguments, timeout=60):
    return subprocess.run([*TFDIST, *arguments], capture_output=True, text=True, timeout=timeout)


def detach(*arguments):
    """Launch in the background; the run."""
    done = tfdist("launch", "--detach", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return RunDir(Path(json.loads(done.stdout.splitlines()[-1])["run_dir"]))


def test_a_detached_run_outlives_its_terminal(folder, survivors):
    with Terminal(["bash", "--norc", "-i"], folder) as first:
        first.type(f"{shlex.join([*TFDIST, COUNTING[0], '--detach', *COUNTING[1:]])}; echo code=$?\n")
        first.wait_for(r"\ncode=0")
        run_path = first.wait_for(r"[\r\n](runs/\S+-launch) runs in the background")[1]
        assert f"tfdist logs {run_path} --follow" in first.text
    listed = tfdist("runs")
    assert re.search(rf"{Path(run_path).name} .* running ", listed.stdout)
    with Terminal([*TFDIST, "logs", "last", "worker-1", "--follow"], folder) as second:
        number = int(second.wait_for(r"count (\d+)\n")[1])
        second.wait_for(rf"count {number + 3}\n")
    with Terminal([*TFDIST, "logs", "last", "--follow"], folder) as third:
        third.wait_for(r"\[worker-0\] count \d+\n")
        third.wait_for(r"\[worker-1\] count \d+\n")
        third.type("\x03")
        assert third.wait() == 130
        assert f"the run continues: 'tfdist stop {run_path}' ends it" in third.text
    stopped = tfdist("stop", "last")
    assert stopped.returncode == 0, stopped.stderr
    assert re.fullmatch(r"\S+-launch: interrupted after .* s, stopped by 'tfdist stop'\n", stopped.stdout)
    outcome = json.loads((folder / run_path / "outcome.json").read_text())
    assert (outcome["status"], outcome["exit_code"]) == ("interrupted", 143)
    assert not (folder / run_path / "control.sock").exists()
    assert "stopped by 'tfdist stop'" in (folder / run_path / "launcher.log").read_text()
    assert survivors() == []


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_a_detached_run_keeps_its_logs_if_standard_streams_are_closed(closed, folder, survivors):
    command = shlex.join([*TFDIST, "launch", "--detach", "--", "sh", "-c", "echo hello"])
    assert subprocess.run(["sh", "-c", f"exec {command} {closed}"], timeout=60).returncode == 0
    (run_dir,) = map(RunDir, (folder / "runs").iterdir())
    wait_until(run_dir.outcome.exists)
    assert json.loads(run_dir.outcome.read_text())["status"] == "ok"
    assert run_dir.log("worker-0", "stdout").read_text() == "hello\n"
    wait_until(lambda: survivors() == [])  # the launcher exits after it has written the outcome


@pytest.mark.thorough
def test_stacks_say_what_each_task_does_while_it_continues(folder, survivors):
    program = "import time, tfdist.launch.events as e; e.dump_on_request(); print('up', flush=True)\ndef load(): time.sleep(900)\nload()"
    run_dir = detach("--strategy", "multiworker", "--", sys.executable, "-c", program)
    logs = [run_dir.log(task, "stdout") for task in ("worker-0", "worker-1")]
    wait_until(lambda: all(log.exists() and "up" in log.read_text() for log in logs))
    for _ in range(2):  # the second one shows nothing of the first
        both = tfdist("stacks", "last")
        assert (both.returncode, both.stdout.count(" in load\n")) == (0, 2), both.stderr
        assert re.search(r"=== worker-0\n(.|\n)*main thread python(.|\n)*=== worker-1\n", both.stdout)
    one = tfdist("stacks", "last", "worker-1")
    assert (one.returncode, one.stdout.count(" in load\n"), "worker-0" in one.stdout) == (0, 1, False)
    wrong = tfdist("stacks", "last", "worker-7")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert tfdist("stop", "last").returncode == 0
    ended = tfdist("stacks", "last")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.endswith("no stacks: it has ended (interrupted); see 'tfdist logs'\n")
    assert survivors() == []


def test_a_run_of_another_terminal_can_be_attached_to_until_its_end(folder, survivors):
    with Terminal([*TFDIST, *COUNTING], folder) as first, Terminal(["true"], folder):
        first.wait_for(r"\[worker-0\] count 1\n")
        with Terminal([*TFDIST, "logs", "last", "--follow"], folder) as second:
            second.wait_for(r"\[worker-1\] count \d+\n")
            (folder / "stop").touch()
            assert second.wait() == 0
            assert second.text.count("[worker-0] finished\n") == 1
            assert re.search(r"\ndone in .* s; kept in runs/", second.text)
        assert first.wait() == 0
    assert survivors() == []


@pytest.mark.thorough
def test_attach_shows_the_last_lines_and_exits_with_the_code_of_the_run(folder, survivors):
    os.mkfifo("go")
    code = "for i in $(seq 30); do echo line $i; done; read go < go; echo why >&2; exit 7"
    run_dir = detach("--strategy", "one-device", "--", "sh", "-c", code)
    wait_until(
        lambda: (
            run_dir.log("worker-0", "stdout").exists() and "line 30" in run_dir.log("worker-0", "stdout").read_text()
        )
    )
    with Terminal([*TFDIST, "logs", "last", "--follow"], folder) as terminal:
        terminal.wait_for(r"\[worker-0\] line 30\n")
        Path("go").write_text("\n")
        assert terminal.wait() == 7
    assert "line 21\n" in terminal.text
    assert "line 20\n" not in terminal.text.partition("\ntfdist: ")[0]
    assert "again: tfdist launch --detach" in terminal.text
    assert "| why" not in terminal.text  # the line is on the screen already
    again = tfdist("logs", "last", "--follow", "--json")
    assert again.returncode == 7
    assert json.loads(again.stdout.splitlines()[-1])["exit_code"] == 7
    assert "worker-0 exited with code 7" in again.stderr
    assert "why" in again.stderr
    assert survivors() == []


def test_the_table_of_a_training_counts_from_the_start_of_its_phases(folder, capsys):
    assert run(["launch", "--dry-run", "--json", "--strategy", "multiworker", *TINY]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    run_dir = RunDir(folder / "runs" / "20260101T120000Z-launch")
    save_json(run_dir.launcher, this_launcher().to_json())
    save_json(run_dir.spec, {"command": [], **json.loads(tasks[0]["env"]["TFDIST_SPEC"])})
    save_json(run_dir.cluster, {"tasks": tasks})
    past = time.time() - 1200
    run_dir.events.write_text(json.dumps({"kind": "Started", "task": "worker-1", "pid": 1, "time": past}) + "\n")
    with Terminal([*TFDIST, "logs", "last", "--follow"], folder) as terminal:
        terminal.wait_for(r"worker-1 +starting 20 min")
        terminal.type("\x03")
        assert terminal.wait() == 130


@pytest.mark.thorough
def test_a_detached_training_shows_its_table_and_its_results_when_attached(folder, survivors):
    detach("--strategy", "multiworker", *TINY, "--steps", "3000")
    with Terminal([*TFDIST, "logs", "last", "--follow"], folder) as terminal:
        assert terminal.wait(timeout_s=120) == 0
    assert "images/s" in terminal.text
    assert re.search(r"worker-1 +done +3,?000", terminal.text)
    assert re.search(r"done in .* images/s \(the whole job\), loss", terminal.text)
    assert survivors() == []


def test_wrong_input_is_refused_before_anything_detaches(folder, survivors):
    done = tfdist("launch", "--detach", "--", "no-such-program")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tfdist: the program 'no-such-program' is not found")
    assert list(folder.iterdir()) == []
    done = tfdist("launch", "--detach", "--dry-run", "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert survivors() == []


def test_a_task_that_cannot_be_started_is_reported_in_the_foreground(folder, survivors):
    Path("broken").write_text("#!/no/such/interpreter\n")
    Path("broken").chmod(0o755)
    done = tfdist("launch", "--detach", "--strategy", "one-device", "--", "./broken")
    assert done.returncode == 127
    assert "could not be started" in done.stderr
    assert survivors() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_start_interrupts_the_launcher_too(number, folder, survivors):
    connect = folder.parent / "connect"  # a path without spaces
    connect.write_text("#!/bin/sh\ntouch connecting\nexec sleep 600\n")
    connect.chmod(0o755)
    arguments = ["--hosts", "h1", "--transport", f"exec:{connect} {{host}}", "--", "true"]
    launcher = subprocess.Popen([*TFDIST, "launch", "--detach", *arguments], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: Path("connecting").exists())
    launcher.send_signal(number)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + number
    assert "tfdist: interrupted before any task was started\n" in err
    assert survivors() == []


def test_a_run_whose_launcher_was_killed_is_lost(folder, survivors):
    run_dir = detach("--strategy", "one-device", "--", "sleep", "600")
    os.kill(read_launcher(run_dir).pid, signal.SIGKILL)
    wait_until(lambda: survivors() == [])
    assert " lost " in tfdist("runs").stdout
    stop = tfdist("stop", "last")
    assert stop.returncode == 1
    assert "its launcher was killed, so there is nothing to stop" in stop.stderr
    attach = tfdist("logs", "last", "--follow")
    assert attach.returncode == 1
    assert "the launcher ended without an outcome" in attach.stderr
    assert tfdist("logs", "last").returncode == 0


def test_a_stopped_task_can_save_and_the_kill_option_does_not_wait_for_it(folder, survivors):
    saving = "trap 'echo saving; touch saving; sleep 600 & wait; echo saved' TERM; echo up; while :; do sleep 0.1; done"
    arguments = ["--strategy", "one-device", "--grace-period", "600", "--", "sh", "-c", saving]
    run_dir = detach(*arguments)
    wait_until(lambda: run_dir.log("worker-0", "stdout").exists())
    stop = subprocess.Popen([*TFDIST, "stop", "last"], stderr=subprocess.PIPE, text=True)
    assert stop.stderr.readline() == "stopping worker-0 ...\n"
    wait_until(lambda: Path("saving").exists())
    stop.send_signal(signal.SIGINT)
    _, err = stop.communicate(timeout=60)
    assert stop.returncode == 130
    assert "is being stopped" in err
    assert not read_run(run_dir).ended
    assert tfdist("stop", "last", "--kill").returncode == 0
    assert json.loads(run_dir.outcome.read_text())["exits"]["worker-0"]["code"] == -signal.SIGKILL
    assert survivors() == []


@pytest.mark.thorough
def test_a_launcher_without_a_socket_kills_its_tasks_too(folder, survivors):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    run_dir = detach("--strategy", "one-device", "--grace-period", "600", "--", sys.executable, "-S", "-c", code)
    wait_until(lambda: run_dir.log("worker-0", "stdout").exists())
    run_dir.control.unlink()
    assert tfdist("stop", "last", "--kill").returncode == 0
    assert survivors() == []


def test_stopping_a_run_that_has_ended_says_how_it_ended(folder, capsys):
    assert run(["launch", "--strategy", "one-device", "--", "true"]) == 0
    capsys.readouterr()
    assert run(["stop", "last"]) == 0
    assert re.fullmatch(r"\S+-launch has already ended: ok after .* s\n", capsys.readouterr().out)


def test_a_suspended_launcher_is_named_by_stop(folder, survivors, monkeypatch, capsys):
    run_dir = detach("--strategy", "one-device", "--", "sleep", "600")
    pid = read_launcher(run_dir).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr("tfdist.launch.runs.launcher.ANSWER_S", 0.2)
        assert run(["stop", "last"]) == 1
        assert f"continue it with 'kill -CONT {pid}'" in capsys.readouterr().err
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run(["stop", "last"]) == 0
    wait_until(lambda: survivors() == [])


@pytest.mark.thorough
def test_a_run_folder_without_a_socket_is_stopped_with_a_signal(folder, survivors):
    run_dir = detach("--strategy", "one-device", "--", "sleep", "600")
    run_dir.control.unlink()
    assert tfdist("stop", "last").returncode == 0
    assert read_run(run_dir).reason == "interrupted by SIGTERM"
    wait_until(lambda: survivors() == [])
