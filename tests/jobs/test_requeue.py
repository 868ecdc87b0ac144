"""`--requeue`: when a Slurm job goes back into the queue."""

import os
import signal
import subprocess
import sys

import pytest

from tfdist.cli.command import run
from tfdist.jobs.requeue import requeue
from tfdist.launch.diagnosis.history import Outcome, Status

SAVED = Outcome(Status.INTERRUPTED, 42, "interrupted by SIGUSR2: saved step 7", signal=signal.SIGUSR2)
JOB = {"SLURM_JOB_ID": "7"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("TF_CONFIG", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """A stand-in that logs its arguments; its path."""
    tool = tmp_path / "bin" / "scontrol"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "$@" >> "$0.log"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    return tool


def asked(scontrol):
    """The calls of scontrol that change something."""
    log = scontrol.with_name("scontrol.log")
    return [line for line in (log.read_text().splitlines() if log.exists() else []) if line != "show config"]


def test_a_saved_job_is_requeued(scontrol):
    assert requeue(SAVED, 42, 3, JOB) == "requeued (1 of 3)"
    assert asked(scontrol) == ["requeue 7"]


@pytest.mark.parametrize("code", [0, 1, 76, 138])
def test_another_exit_code_is_final(code, scontrol):
    assert requeue(SAVED, code, 3, JOB) == ""
    assert asked(scontrol) == []


def test_the_number_of_requeues_is_limited(scontrol):
    assert requeue(SAVED, 42, 3, {**JOB, "SLURM_RESTART_COUNT": "2"}) == "requeued (3 of 3)"
    assert requeue(SAVED, 42, 3, {**JOB, "SLURM_RESTART_COUNT": "3"}) == "not requeued: --requeue 3 is used up"
    assert asked(scontrol) == ["requeue 7"]


def test_a_job_that_was_cancelled_stays_cancelled(scontrol):
    cancelled = Outcome(Status.INTERRUPTED, 42, "interrupted by SIGTERM: saved step 7", signal=signal.SIGTERM)
    assert requeue(cancelled, 42, 3, JOB) == "not requeued: SIGTERM has ended it"
    assert asked(scontrol) == []


def test_a_failure_of_slurm_is_reported_with_the_command(scontrol):
    scontrol.write_text(
        "#!/bin/sh\necho 'slurm_requeue error: Requested operation is presently disabled' >&2; exit 1\n"
    )
    assert requeue(SAVED, 42, 3, JOB) == (
        "not requeued: slurm_requeue error: Requested operation is presently disabled; run 'scontrol requeue 7'"
    )
    scontrol.unlink()
    assert requeue(SAVED, 42, 3, JOB) == "not requeued: scontrol: No such file or directory; run 'scontrol requeue 7'"


AUTO = ["--checkpoint-dir", "ckpt", "--resume", "auto"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--requeue", "0", *AUTO], "--requeue 0: must be at least 1; omit it to never requeue the job"),
        (["--requeue", "3"], "--requeue 3: the job would start from step 0 again; add --checkpoint-dir DIR --resume auto"),
        (["--requeue", "3", "--checkpoint-dir", "ckpt"], "--requeue 3: the job would start from step 0 again; add --resume auto"),
        (["--requeue", "3", "--", "true"], "--requeue 3: the job would start from step 0 again; add --checkpoint-dir DIR"),
        (["--requeue", "3", *AUTO], "--requeue 3: not inside a Slurm job; submit one with 'tfdist sbatch', or omit it"),
    ],
)  # fmt: skip
def test_a_requeue_that_cannot_work_is_refused(arguments, message, capsys, tmp_path):
    assert run(["launch", *arguments]) == 2
    assert capsys.readouterr().err == f"tfdist: {message}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("code", "calls"), [(42, ["requeue 7"]), (3, [])])
def test_the_last_act_of_a_launch_is_the_requeue(code, calls, scontrol, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    program = [sys.executable, "-S", "-c", f"raise SystemExit({code})"]
    assert run(["launch", "--requeue", "3", "--checkpoint-dir", "ckpt", "--", *program]) == code
    assert asked(scontrol) == calls
    assert capsys.readouterr().err.endswith("tfdist: requeued (1 of 3)\n") is bool(calls)


def test_the_sigterm_with_which_slurm_ends_a_requeued_job_leaves_time_to_say_so(scontrol, tmp_path):
    scontrol.write_text('#!/bin/sh\n[ "$1" = requeue ] && kill -TERM $PPID $$\nexit 0\n')
    launch = [sys.executable, "-m", "tfdist", "launch", "--requeue", "3", "--checkpoint-dir", "ckpt", "--"]
    program = [sys.executable, "-S", "-c", "raise SystemExit(42)"]
    done = subprocess.run([*launch, *program], env={**os.environ, **JOB}, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 42
    assert done.stderr.endswith("tfdist: requeued (1 of 3)\n")
