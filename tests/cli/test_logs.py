"""`tfdist logs`, with runs of real programs."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfdist.cli.command import run

TFDIST = [sys.executable, "-m", "tfdist.cli"]
WRITES = ["sh", "-c", "echo out of $TFDIST_TASK; printf 'no newline'; echo err of $TFDIST_TASK >&2"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch, capfd):
    folder = tmp_path / "it's; new"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert run(["launch", "--strategy", "multiworker", "--workers", "2", "--", *WRITES]) == 0
    capfd.readouterr()


def printed(capfd, *arguments):
    assert run(["logs", *arguments]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


def test_all_tasks_are_printed_with_their_names(capfd):
    assert printed(capfd, "last").splitlines() == [
        "[worker-0] out of worker-0",
        "[worker-0] no newline",
        "[worker-0] err of worker-0",
        "[worker-1] out of worker-1",
        "[worker-1] no newline",
        "[worker-1] err of worker-1",
    ]
    assert printed(capfd, "last", "--stderr") == "[worker-0] err of worker-0\n[worker-1] err of worker-1\n"


def test_steps_follow_what_the_tasks_wrote(capfd):
    step = '{"event": "step", "step": %d, "steps": 2, "loss": 0.5}'
    script = "".join(f"echo '{step % number}' >&$TFDIST_EVENTS_FD; " for number in (1, 2))
    assert run(["launch", "--strategy", "one-device", "--", "bash", "-c", f"{script} echo end"]) == 0
    capfd.readouterr()
    steps = ["[worker-0] step 1/2  loss 0.5000", "[worker-0] step 2/2  loss 0.5000"]
    assert printed(capfd, "last").splitlines() == ["[worker-0] end", *steps]
    assert printed(capfd, "last", "--stderr") == ""


@pytest.mark.parametrize("terminal", [False, True])
def test_a_file_gets_the_steps_of_one_task_and_a_terminal_those_of_all(terminal, capfd, monkeypatch):
    step = """{"event": "step", "step": %d, "steps": 2, "loss": 0.5}"""
    script = "".join(f"echo '{step % number}' >&$TFDIST_EVENTS_FD; " for number in (1, 2))
    assert run(["launch", "--strategy", "multiworker", "--workers", "2", "--", "bash", "-c", script]) == 0
    capfd.readouterr()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    stepping = re.findall(r"\[(worker-.)\] step (.)/2", printed(capfd, "last"))
    one = stepping[0][0]
    assert [step for task, step in stepping if task == one] == ["1", "2"]
    assert len(stepping) == (4 if terminal else 2)


def test_one_task_is_printed_byte_for_byte(capfd):
    assert printed(capfd, "last", "worker-1") == "out of worker-1\nno newline"
    assert printed(capfd, "last", "worker-1", "--stderr") == "err of worker-1\n"


def test_a_task_of_an_earlier_attempt_on_more_hosts_is_printed(capfd):
    (first,) = Path("runs").glob("*/attempt-0")
    (first / "worker-2").mkdir()
    (first / "worker-2/stderr.log").write_text("lost")
    assert printed(capfd, "last", "worker-2", "--stderr") == "lost"
    assert run(["logs", "last", "worker-3"]) == 2
    assert capfd.readouterr().err.endswith("Choose from worker-0, worker-1, worker-2\n")


@pytest.mark.slow
@pytest.mark.parametrize("task", [[], ["worker-0"]])
def test_following_a_run_that_has_ended_prints_it_and_ends(task, capfd):
    assert "out of worker-0" in printed(capfd, "last", *task, "--follow")


@pytest.mark.slow
@pytest.mark.parametrize("task", [[], ["worker-0"]])
def test_following_ends_with_the_exit_code_of_the_run(task, capfd):
    command = ["--name", "failed", "--strategy", "one-device", "--", "sh", "-c", "echo up; exit 7"]
    assert run(["launch", *command]) == 7
    assert run(["logs", "failed", *task, "--follow"]) == 7
    assert "up\n" in capfd.readouterr().out


def test_an_unknown_run_or_task_is_refused(capfd):
    for arguments, message in [
        (["last", "worker-2"], "TASK worker-2: did you mean worker-1? Choose from worker-0, worker-1\n"),
        (["1999"], "RUN 1999: no such run in runs; "),
        (["last", "--runs-dir", "none"], "no runs in none: "),
    ]:
        assert run(["logs", *arguments]) == 2
        assert capfd.readouterr().err.startswith(f"tfdist: {message}")


@pytest.mark.slow
def test_a_closed_pipe_ends_it_quietly():
    (log,) = Path("runs").glob("*/attempt-0/worker-0/stdout.log")
    log.write_bytes(b"x" * 80 + b"\n" + log.read_bytes() * 20_000)
    for task in ("", "worker-0 --follow"):
        shell = f"set -o pipefail; {shlex.join(TFDIST)} logs last {task} | head -1"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("x" * 80 + "\n")


@pytest.mark.slow
def test_following_shows_new_output_and_ends_with_the_run(survivors):
    code = "import sys; print('begin', flush=True); sys.stdin = open(sys.argv[1]); print(sys.stdin.readline())"
    os.mkfifo("go")
    command = ["launch", "--name", "second", "--strategy", "one-device", "--", "python", "-c", code, "go"]
    launcher = subprocess.Popen([*TFDIST, *command], stdout=subprocess.PIPE, text=True)
    assert "[worker-0] begin\n" in launcher.stdout
    with subprocess.Popen([*TFDIST, "logs", "second", "-f"], stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout.readline() == "[worker-0] begin\n"
        Path("go").write_text("end\n")
        assert follower.stdout.readline() == "[worker-0] end\n"
        assert follower.wait(timeout=30) == 0
    assert launcher.wait(timeout=30) == 0
    launcher.stdout.close()
    assert survivors() == []


@pytest.mark.slow
def test_ctrl_c_ends_following_silently_and_leaves_the_run_alone(survivors):
    command = [
        *TFDIST,
        "launch",
        "--name",
        "second",
        "--strategy",
        "one-device",
        "--",
        "sh",
        "-c",
        "echo up; sleep 600",
    ]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert "[worker-0] up\n" in launcher.stdout
    follow = [*TFDIST, "logs", "second", "worker-0", "--follow"]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stdout.readline() == "up\n"
        follower.send_signal(signal.SIGINT)
        assert follower.wait(timeout=30) == 130
        assert follower.stderr.read() == ""
    assert launcher.poll() is None
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(timeout=30) == 130
    launcher.stdout.close()
    assert survivors() == []


def test_one_task_on_a_terminal_is_printed_without_controls(capfd, monkeypatch):
    (log,) = Path("runs").glob("*/attempt-0/worker-0/stdout.log")
    log.write_bytes(b"10%\r20%\x1b[5C\n\x1b]0;x\x07\x1b[31mred\xc2\x9b\xff\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert printed(capfd, "last", "worker-0") == "20%\n\x1b[31mred\ufffd\x1b[0m\n"
