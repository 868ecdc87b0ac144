from dataclasses import replace
from signal import SIGTERM, SIGUSR2

import pytest

from tfdist.launch.policy import DEFAULT_S, Policy, kill_wait_s

CONFIG = "KillOnBadExit           = 0\nKillWait                = 45 sec\nLaunchParameters        = (null)\n"


def environ(folder, script):
    """A Slurm job on a machine with this `scontrol`."""
    tool = folder / "scontrol"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return {"SLURM_JOB_ID": "7", "PATH": f"{folder}:/bin:/usr/bin"}


def test_outside_of_a_slurm_job_nothing_is_asked(tmp_path):
    variables = environ(tmp_path, f"touch {tmp_path}/asked")
    del variables["SLURM_JOB_ID"]
    assert kill_wait_s(variables) == 0.0
    assert not (tmp_path / "asked").exists()


def test_a_heterogeneous_job_is_a_slurm_job(tmp_path):
    variables = environ(tmp_path, "exit 1")
    del variables["SLURM_JOB_ID"]
    assert kill_wait_s({**variables, "SLURM_HET_SIZE": "2"}) == DEFAULT_S


def test_slurm_says_how_long_it_waits(tmp_path, monkeypatch):
    variables = environ(tmp_path, f"[ \"$*\" = 'show config' ] && cat <<'END'\n{CONFIG}END")
    monkeypatch.setenv("PATH", variables["PATH"])
    assert kill_wait_s(variables) == 45.0


@pytest.mark.parametrize("script", ["echo 'slurm_load_ctl_conf error' >&2; exit 1", "sleep 60", "echo KillWait = soon"])
def test_without_an_answer_it_is_slurms_default(tmp_path, script, monkeypatch):
    monkeypatch.setattr("tfdist.launch.policy.ANSWER_S", 0.2)
    variables = environ(tmp_path, f"exec {script}" if script.startswith("sleep") else script)
    monkeypatch.setenv("PATH", variables["PATH"])
    assert kill_wait_s(variables) == DEFAULT_S


def test_without_scontrol_it_is_slurms_default(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kill_wait_s({"SLURM_JOB_ID": "7", "PATH": str(tmp_path)}) == DEFAULT_S


def test_the_time_for_a_login_grows_with_the_start_timeout_and_is_at_most_that():
    assert [Policy(start_timeout_s=seconds).login_s for seconds in (5.0, 30.0, 60.0, 90.0)] == [5.0, 14.0, 14.0, 21.0]


def test_a_restart_does_not_wait_for_what_tasks_save_after_a_failure():
    policy = Policy(grace_s=5.0, restart_grace_s=0.3)
    assert (policy.failure_grace_s, replace(policy, max_restarts=1).failure_grace_s) == (5.0, 0.3)
    assert replace(policy, grace_s=0.1, max_restarts=1).failure_grace_s == 0.1


def test_after_sigterm_tasks_have_as_long_as_the_scheduler_waits():
    policy = Policy(grace_s=120.0, kill_wait_s=30.0)
    assert (policy.stop_grace_s(SIGTERM), policy.save_grace_s(SIGTERM)) == (25.0, 25.0)
    assert (policy.stop_grace_s(SIGUSR2), policy.save_grace_s(SIGUSR2)) == (120.0, 120.0)
    patient = replace(policy, grace_s=5.0, kill_wait_s=100.0)
    assert (patient.stop_grace_s(SIGTERM), patient.save_grace_s(SIGTERM)) == (5.0, 95.0)
    assert replace(policy, kill_wait_s=3.0).save_grace_s(SIGTERM) == 1.0


def test_without_a_scheduler_a_save_has_at_least_25_s():
    assert [Policy(grace_s=seconds).save_grace_s(SIGTERM) for seconds in (5.0, 60.0)] == [25.0, 60.0]
    assert Policy(grace_s=5.0).stop_grace_s(SIGTERM) == 5.0
