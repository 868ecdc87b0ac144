"""Who is named when real workers fail, and how soon."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TFDIST = [sys.executable, "-m", "tfdist.cli", "launch", "--json"]
PROGRAM = str(Path(__file__).parent / "fail_in_a_cluster.py")
TWO_WORKERS = ("--strategy", "multiworker", "--workers", "2", "--", sys.executable)


def launch(*arguments, cwd):
    """The JSON, the stderr and the seconds of a launch; its messages from events.jsonl."""
    started = time.monotonic()
    done = subprocess.run([*TFDIST, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120)
    seconds = time.monotonic() - started
    summary = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == summary["exit_code"]
    return summary, done.stderr, seconds


def python(code, folder):
    (folder / "program.py").write_text(f"import os, sys, time\ntask = os.environ['TFDIST_TASK']\n{code}")
    return (*TWO_WORKERS, "program.py")


def seconds_after_exit(task, folder):
    """How long after the exit of a task the last process of the run has ended, by the time of outcome.json."""
    (run_dir,) = (folder / "runs").iterdir()
    messages = map(json.loads, (run_dir / "events.jsonl").read_text().splitlines())
    exited = next(message["time"] for message in messages if message["kind"] == "Exited" and message["task"] == task)
    return (run_dir / "outcome.json").stat().st_mtime - exited


def test_the_failure_is_reported_as_soon_as_the_peer_has_died_of_it(tmp_path, survivors):
    peer = "time.sleep(2); sys.exit('UnavailableError: Collective ops is aborted by: Socket closed')"
    program = python(f"if task == 'worker-0': {peer}\ntime.sleep(1)\nraise ValueError('bad data')", tmp_path)
    summary, err, _ = launch(*program, cwd=tmp_path)
    assert "tfdist: worker-1 exited with code 1: ValueError: bad data\n" in err
    assert list(summary["casualties"]) == ["worker-0"]
    assert seconds_after_exit("worker-1", tmp_path) < 4
    assert survivors() == []


def test_a_peer_that_does_not_notice_the_failure_is_stopped(tmp_path):
    program = python("if task == 'worker-0': time.sleep(600)\nraise ValueError('bad data')", tmp_path)
    summary, err, _ = launch(*program, cwd=tmp_path)
    assert "tfdist: worker-1 exited with code 1: ValueError: bad data\n" in err
    assert summary["casualties"] == {"worker-0": "stopped by tfdist"}
    assert seconds_after_exit("worker-1", tmp_path) < 6


def test_ctrl_c_ends_idle_tasks_at_once(tmp_path):
    program = python("print('up', flush=True); time.sleep(600)", tmp_path)
    launcher = subprocess.Popen(
        [*TFDIST, *program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    up = 0
    while up < 2:
        line = launcher.stderr.readline()
        assert line, "the launch has ended"
        up += line.endswith("] up\n")
    pressed = time.monotonic()
    launcher.send_signal(signal.SIGINT)
    out, err = launcher.communicate(timeout=60)
    assert time.monotonic() - pressed < 4.5  # the grace period is 5 s
    assert "tfdist: interrupted by SIGINT\n" in err
    assert json.loads(out)["casualties"] == dict.fromkeys(("worker-0", "worker-1"), "stopped by tfdist")


@pytest.mark.thorough
def test_a_worker_that_is_stopped_by_a_signal_is_named(tmp_path, survivors):
    summary, err, _ = launch(*TWO_WORKERS, PROGRAM, "worker-1", "freeze", cwd=tmp_path)
    assert "tfdist: worker-1 is stopped (state T: SIGSTOP or a debugger)\n" in err
    # worker-0 loses its connection, or is stopped with the job
    assert summary["casualties"]["worker-0"].startswith(("exited with code 1: UnavailableErr", "stopped by tfdist"))
    assert survivors() == []


@pytest.mark.thorough
@pytest.mark.parametrize("options", [[], ["current"]], ids=["plain", "current"])
def test_a_worker_that_does_not_end_after_its_exception_is_named(options, tmp_path, survivors):
    summary, err, seconds = launch(*TWO_WORKERS, PROGRAM, "worker-1", "slow", *options, cwd=tmp_path)
    assert "ValueError: bad data" in err[err.index("tfdist: worker-1 ") :].splitlines()[0]
    assert summary["culprit"] == "worker-1"
    assert summary["exit_code"] == 1
    assert seconds < 50
    assert survivors() == []


@pytest.mark.thorough
def test_a_worker_that_exits_before_it_joins_the_cluster_is_named(tmp_path):
    summary, err, _ = launch(*TWO_WORKERS, PROGRAM, "worker-1", "leave", cwd=tmp_path)
    assert "tfdist: worker-1 exited with code 0 before it joined the cluster; worker-0 waits for it\n" in err
    assert summary["exit_code"] == 1


@pytest.mark.thorough
def test_a_ps_that_exits_before_the_chief_is_named(tmp_path):
    (tmp_path / "program.py").write_text(
        "import os\nfrom tfdist.strategies import current\nif os.environ['TFDIST_TASK'] != 'ps-0': current()"
    )
    options = ("--strategy", "parameter-server", "--workers", "1", "--", sys.executable, "program.py")
    summary, err, _ = launch(*options, cwd=tmp_path)
    assert "tfdist: ps-0 exited with code 0, but chief-0 still needs it: a script without server.join()" in err
    assert (summary["exit_code"], summary["culprit"]) == (1, "ps-0")


@pytest.mark.thorough
def test_sigterm_ends_a_program_under_multiworker_that_calls_current(tmp_path):
    program = "from tfdist.strategies import current\ncurrent()\nprint('up', flush=True); time.sleep(600)"
    launcher = subprocess.Popen(
        [*TFDIST, "--grace-period", "60", *python(program, tmp_path)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    up = 0
    while up < 2:
        line = launcher.stderr.readline()
        assert line, "the launch has ended"
        up += line.endswith("] up\n")
    launcher.send_signal(signal.SIGINT)
    out, _ = launcher.communicate(timeout=30)
    assert json.loads(out)["casualties"] == dict.fromkeys(("worker-0", "worker-1"), "stopped by tfdist")
