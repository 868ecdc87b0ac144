"""`tfdist sbatch`: the script that it prints, and what it refuses."""

import shlex

import pytest

from tfdist.cli.main import run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)


def script(capsys, *arguments):
    """The lines that are printed, and the words of the last one."""
    assert run(["sbatch", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    return lines[:-1], shlex.split(lines[-1])


def test_the_script_asks_for_whole_nodes_and_starts_the_launch_in_place_of_the_shell(capsys, tmp_path):
    lines, words = script(
        capsys, "--nodes", "2", "--strategy", "multiworker", "--", "python", "my train.py", "--nodes", "9"
    )
    assert lines == ["#!/bin/bash", "#SBATCH --job-name=launch", "#SBATCH --nodes=2", "#SBATCH --exclusive"]
    assert words == [
        "exec", "tfdist", "launch", "--transport", "srun", "--strategy", "multiworker", "--", "python", "my train.py", "--nodes", "9",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_saves_is_signalled_in_time_and_may_be_requeued(capsys):
    saves = (
        "--preset",
        "smoke",
        "--checkpoint-every",
        "10m",
        "--checkpoint-dir",
        "ckpt",
        "--resume",
        "auto",
        "--grace-period",
        "300",
    )
    lines, words = script(capsys, "--nodes", "2", "--gpus-per-node", "4", "--requeue", "3", "--name", "long", *saves)
    assert lines[1:] == [
        "#SBATCH --job-name=long",
        "#SBATCH --nodes=2",
        "#SBATCH --exclusive",
        "#SBATCH --gpus-per-node=4",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#SBATCH --signal=B:USR2@360",
    ]
    options = " ".join(words[5:])
    for part in (" ".join(saves[2:8]), "--grace-period 300", "--requeue 3", "--name long"):
        assert part in options


def test_without_checkpoints_no_signal_shortens_the_job(capsys):
    lines, _ = script(capsys, "--nodes", "1", "--preset", "smoke")
    assert not any("signal" in line for line in lines)


def test_every_kind_of_option_is_passed_on(capsys):
    given = [
        "--strategy", "multiworker", "--preset", "smoke", "--learning-rate", "0.123456789", "--no-evaluate", "--keras", "2",
        "--workers-per-host", "2", "--python", "/opt/tf/bin/python", "--chdir", ".", "--start-timeout", "90",
        "--timeout", "3600", "--port", "12345", "--env", "A=1", "--env", "B=x y", "--runs-dir", "out", "--output", "worker-0",
        "--no-prefix", "--timestamps", "--quiet", "--verbose",
    ]  # fmt: skip
    _, words = script(capsys, "--nodes", "2", *given)
    pairs = list(zip(words, [*words[1:], ""], strict=True))
    for flag in [word for word in given if word.startswith("--")]:
        assert flag in words
    for pair in [
        ("--learning-rate", "0.123456789"),
        ("--keras", "2"),
        ("--env", "A=1"),
        ("--env", "B=x y"),
        ("--port", "12345"),
    ]:
        assert pair in pairs
    assert run(["launch", "--dry-run", "--hosts", "localhost", *words[5:]]) == 0  # launch takes them all


def test_options_of_the_environment_are_written_down(capsys, monkeypatch):
    monkeypatch.setenv("TFDIST_STRATEGY", "multiworker")
    monkeypatch.setenv("TFDIST_NODES", "3")
    lines, words = script(capsys)
    assert "#SBATCH --nodes=3" in lines
    assert words[5:] == ["--strategy", "multiworker"]


def test_other_options_of_sbatch_are_passed_on(capsys):
    lines, words = script(
        capsys, "--nodes", "1", "--no-exclusive", "--sbatch-option", "time=1-0", "--sbatch-option", "--cpus-per-task=8"
    )
    assert lines[3:] == ["#SBATCH --time=1-0", "#SBATCH --cpus-per-task=8"]
    assert words == ["exec", "tfdist", "launch", "--transport", "srun"]


def test_secrets_stay_out_of_the_script(capsys):
    assert run(["sbatch", "--nodes", "1", "--env", "API_TOKEN=hunter2", "--env", "A=1", "--", "true"]) == 0
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err
    assert "--env API_TOKEN --env A=1 -- true" in out
    assert "the value of API_TOKEN is not printed: set API_TOKEN before you submit the job" in err
    assert run(["sbatch", "--nodes", "1", "--", "train", "--token", "hunter2"]) == 2
    out, err = capsys.readouterr()
    assert (out, "hunter2" in err) == ("", False)


WRONG = [
    (["--nodes", "0"], "--nodes 0: must be at least 1"),
    (["--nodes", "two"], "--nodes two: must be an integer"),
    (["--nodes", "1", "--gpus-per-node", "-1"], "--gpus-per-node -1: must not be negative"),
    ([], "--nodes: missing option; see 'tfdist sbatch --help'"),
    (["--nodes", "1", "--hosts", "h1"], "--hosts: no such option"),
    (["--nodes", "1", "--sbatch-option", "nodes=3"], "--sbatch-option nodes=3: use --nodes"),
    (["--nodes", "1", "--timeout", "0"], "--timeout 0: must be positive"),
    (
        ["--nodes", "1", "--requeue", "2"],
        "--requeue 2: the job would start from step 0 again; add --checkpoint-dir DIR",
    ),
    (["--nodes", "2", "--strategy", "mirrored"], "mirrored"),
    (["--nodes", "2", "--strategy", "multiworker", "--workers", "3", "--workers-per-host", "1"], "3 worker"),
    (["--nodes", "1", "--strategy", "multiworker", "--communication", "nccl"], "nccl"),
    (["--nodes", "1", "--output", "worker-7", "--", "true"], "--output worker-7"),
    (["--nodes", "1", "--preset", "smoke", "--", "true"], "--preset smoke is for the built-in training"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=lambda value: " ".join(value))
def test_what_cannot_run_is_refused_before_it_waits_in_a_queue(arguments, message, capsys):
    assert run(["sbatch", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_a_job_on_gpus_is_planned_with_them(capsys):
    nccl = ("--strategy", "multiworker", "--communication", "nccl", "--preset", "smoke")
    _, words = script(capsys, "--nodes", "2", "--gpus-per-node", "4", *nccl)
    assert "nccl" in words


def test_bytes_that_are_not_utf8_are_refused(capsys):
    assert run(["sbatch", "--nodes", "1", "--", "echo", "caf\udce9"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "tfdist: 'caf\\udce9': not valid UTF-8, as a batch script must be; use another name\n"
    assert printed.out == ""
