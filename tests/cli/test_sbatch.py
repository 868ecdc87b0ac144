"""`tfdist sbatch`: the script that it prints, and what it refuses."""

import shlex

import pytest

from tfdist.cli.command import run
from tfdist.cli.sbatch import parse_option
from tfdist.launch.errors import TfdistError


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
        capsys, "--nodes", "2", "launch", "--strategy", "multiworker", "--", "python", "my train.py", "--nodes", "9"
    )
    assert lines == ["#!/bin/bash", "#SBATCH --job-name=launch", "#SBATCH --nodes=2", "#SBATCH --exclusive"]
    assert words == [
        "exec", "tfdist", "launch", "--transport", "srun", "--strategy", "multiworker", "--", "python", "my train.py", "--nodes", "9",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("first", [["--partition", "launch", "--nodes", "2"], ["--partition", "launch"]])
def test_a_wrong_value_is_named_even_if_a_value_before_is_the_command(first, capsys):
    assert run(["sbatch", *first, "launch", "--steps", "x"]) == 2
    assert capsys.readouterr().err == "tfdist: --steps x: must be an integer\n"


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
    lines, words = script(
        capsys, "--nodes", "2", "--gpus-per-node", "4", "launch", "--requeue", "3", "--name", "long", *saves
    )
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
    lines, _ = script(capsys, "--nodes", "1", "launch", "--preset", "smoke")
    assert not any("signal" in line for line in lines)


def test_every_kind_of_option_is_passed_on(capsys):
    given = [
        "--strategy", "multiworker", "--preset", "smoke", "--set", "learning_rate=0.123456789", "--set", "evaluate=false", "--keras", "2",
        "--workers-per-host", "2", "--python", "/opt/tf/bin/python", "--chdir", ".", "--start-timeout", "90",
        "--timeout", "3600", "--port", "12345", "--env", "A=1", "--env", "B=x y", "--runs-dir", "out", "--output", "worker-0",
        "--no-prefix", "--timestamps", "--quiet", "--verbose",
    ]  # fmt: skip
    _, words = script(capsys, "--nodes", "2", "launch", *given)
    pairs = list(zip(words, [*words[1:], ""], strict=True))
    for flag in [word for word in given if word.startswith("--")]:
        assert flag in words
    for pair in [
        ("--set", "learning_rate=0.123456789"),
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
    lines, words = script(capsys, "launch")
    assert "#SBATCH --nodes=3" in lines
    assert words[5:] == ["--strategy", "multiworker"]
    for name, value in {"HOSTS": "h1,h2", "DETACH": "1", "TRANSPORT": "ssh"}.items():
        monkeypatch.setenv(f"TFDIST_{name}", value)
    unset = "unset TFDIST_HOSTS TFDIST_TRANSPORT TFDIST_DETACH"  # the job gets our environment
    assert script(capsys, "launch") == ([*lines, unset], words)


def test_other_options_of_sbatch_are_passed_on(capsys):
    lines, words = script(
        capsys,
        *[
            "--nodes",
            "1",
            "--no-exclusive",
            "--time",
            "1-0",
            "--sbatch-option",
            "--cpus-per-task=8",
            "--partition",
            "gpu",
            "launch",
        ],
    )
    assert lines[3:] == ["#SBATCH --partition=gpu", "#SBATCH --time=1-0", "#SBATCH --cpus-per-task=8"]
    assert words == ["exec", "tfdist", "launch", "--transport", "srun"]


def test_secrets_stay_out_of_the_script(capsys):
    assert run(["sbatch", "--nodes", "1", "launch", "--env", "API_TOKEN=hunter2", "--env", "A=1", "--", "true"]) == 0
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err
    assert "--env API_TOKEN --env A=1 -- true" in out
    assert "the value of API_TOKEN is not printed: set API_TOKEN before you submit the job" in err
    assert run(["sbatch", "--nodes", "1", "launch", "--", "train", "--token", "hunter2"]) == 2
    out, err = capsys.readouterr()
    assert (out, "hunter2" in err) == ("", False)


WRONG = [
    ("--nodes 0 launch", "--nodes 0: must be at least 1"),
    ("--nodes two launch", "--nodes two: must be an integer"),
    ("--nodes 1 --gpus-per-node -1 launch", "--gpus-per-node -1: must not be negative"),
    ("launch", "--nodes: missing option; give the number of nodes"),
    ("--nodes 1", "Missing command; see 'tfdist sbatch --help'"),
    ("--nodes 1 --preset smoke", "--preset: no such option; it belongs to the command: write 'tfdist sbatch ... launch --preset'"),
    ("--nodes 1 launch --hosts h1", "--hosts h1: the nodes of the Slurm job are the hosts; omit it"),
    ("--nodes 1 launch --transport ssh", "--transport ssh: the nodes of the Slurm job are the hosts; omit it"),
    ("--nodes 1 launch --detach", "--detach: sbatch prints how to run the command, and starts nothing; omit it"),
    ("--nodes 1 --sbatch-option nodes=3 launch", "--sbatch-option nodes=3: use --nodes"),
    ("--nodes 1 --sbatch-option time=3 launch", "--sbatch-option time=3: use --time"),
    ("--nodes 1 launch --timeout 0", "--timeout 0: must be positive"),
    ("--nodes 1 launch --requeue 2", "--requeue 2: the job would start from step 0 again; add --checkpoint-dir DIR"),
    ("--nodes 2 launch --strategy mirrored", "mirrored"),
    ("--nodes 2 launch --strategy multiworker --workers 3 --workers-per-host 1", "3 worker"),
    ("--nodes 1 launch --strategy multiworker --communication nccl", "nccl"),
    ("--nodes 1 launch --output worker-7 -- true", "--output worker-7"),
    ("--nodes 1 launch --preset smoke -- true", "--preset smoke is for the built-in training"),
    ("--nodes 2 bench --suite none", "--suite none: No such file"),
    ("--nodes 2 tune --strategy tpu", "--strategy tpu: no arm of suite knobs"),
    ("--nodes 2 collectives --op sum", "--op sum: "),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_cannot_run_is_refused_before_it_waits_in_a_queue(arguments, message, capsys):
    assert run(["sbatch", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_a_job_on_gpus_is_planned_with_them(capsys):
    nccl = ("--strategy", "multiworker", "--communication", "nccl", "--preset", "smoke")
    _, words = script(capsys, "--nodes", "2", "--gpus-per-node", "4", "launch", *nccl)
    assert "nccl" in words


def test_bytes_that_are_not_utf8_are_refused(capsys):
    assert run(["sbatch", "--nodes", "1", "launch", "--", "echo", "caf\udce9"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "tfdist: 'caf\\udce9': not valid UTF-8, as a batch script must be; use another name\n"
    assert printed.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        "bench --suite hosts --rounds 3 --turn 5s",
        "tune --strategy multiworker --rounds 3",
        "collectives --sizes 1K:1M --rounds 3",
    ],
)
def test_benches_run_in_a_job_too(arguments, capsys):
    lines, words = script(capsys, "--nodes", "2", *arguments.split())
    command, *options = arguments.split()
    assert lines[1] == f"#SBATCH --job-name={command}"
    assert words[:5] == ["exec", "tfdist", command, "--transport", "srun"]
    assert set(words[5:]) >= {option for option in options if option != "5s"}
    if command == "bench":
        assert "--turn 5" in " ".join(words)


def test_the_name_of_the_job_can_be_chosen(capsys):
    lines, _ = script(capsys, *["--nodes", "2", "--sbatch-option", "job-name=night", "bench", "--suite", "hosts"])
    assert [line for line in lines if "job-name" in line] == ["#SBATCH --job-name=night"]


def test_options_of_sbatch_are_written_with_hyphens_or_without():
    assert [parse_option(text) for text in ("qos=high", "--mem=1G", "contiguous", "comment=a b")] == [
        "qos=high", "mem=1G", "contiguous", "comment=a b",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "-p gpu", "p gpu", "=x", "qos=", "qos=a\n#SBATCH --nodes=9", "--"])
def test_what_is_no_long_option_is_refused(text):
    with pytest.raises(TfdistError, match=r"--sbatch-option .*: not NAME or NAME=VALUE; use a long option"):
        parse_option(text)


def test_an_option_that_tfdist_has_itself_is_refused():
    with pytest.raises(TfdistError, match="--sbatch-option nodes=3: use --nodes"):
        parse_option("nodes=3")
