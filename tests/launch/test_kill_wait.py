import pytest

from tfdist.launch.kill_wait import DEFAULT_S, kill_wait_s

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
    monkeypatch.setattr("tfdist.launch.kill_wait.ANSWER_S", 0.2)
    variables = environ(tmp_path, f"exec {script}" if script.startswith("sleep") else script)
    monkeypatch.setenv("PATH", variables["PATH"])
    assert kill_wait_s(variables) == DEFAULT_S


def test_without_scontrol_it_is_slurms_default(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kill_wait_s({"SLURM_JOB_ID": "7", "PATH": str(tmp_path)}) == DEFAULT_S
