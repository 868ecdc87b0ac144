"""Wrong input: one sentence with the value and the fix, exit code 2, nothing started and no folder created."""

import os
import socket
from pathlib import Path

import pytest

from tfdist.cli.command import run
from tfdist.jobs.inherit import Inherit
from tfdist.jobs.plan import plan
from tfdist.jobs.request import Request
from tfdist.launch.agent_program import gpus
from tfdist.launch.environment import read_env_file
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.hosts.parse import parse_hostfile
from tfdist.launch.machine import Machine

WRONG = [
    (["--strategy", "mirored"], ["mirored", "mirrored"]),
    (["--workers", "0", "--strategy", "multiworker"], ["--workers 0", "at least 1"]),
    (["--workers", "-1", "--strategy", "multiworker"], ["--workers -1", "at least 1"]),
    (["--workers", "two"], ["--workers two", "integer"]),
    (["--workers=two"], ["--workers two", "integer"]),
    (["--devices", "0", "--strategy", "mirrored"], ["--devices 0"]),
    (["--communication", "nccl", "--strategy", "multiworker"], ["--communication nccl", "GPUs", "ring"]),
    (["--cross-device", "nccl", "--strategy", "mirrored"], ["--cross-device nccl", "GPUs", "hierarchical-copy"]),
    (["--communication", "ring", "--strategy", "mirrored"], ["--communication ring", "multiworker"]),
    (["--ps", "1", "--strategy", "mirrored"], ["--ps 1", "parameter-server"]),
    (["--ps", "0", "--strategy", "parameter-server"], ["--ps 0", "--ps 1"]),
    (["--workers", "2", "--strategy", "one-device"], ["--workers 2", "multiworker"]),
    (["--set", "packs=2", "--strategy", "mirrored"], ["--set packs=2", "hierarchical-copy"]),
    (
        ["--strategy", "mirrored", "--devices", "3", "--cross-device", "hierarchical-copy"],
        ["hierarchical-copy --devices 3", "one of 3 devices", "--devices 2 or 4"],
    ),
    (["--strategy", "mirrored", "--devices", "3", "--cross-device", "hierarchical-copy", "--", "true"], ["drops"]),
    (["--set", "variable_partitioner=fixed", "--strategy", "parameter-server"], ["fixed:N"]),
    (["--global-batch-size", "33", "--strategy", "mirrored", "--devices", "2"], ["33", "2 replicas", "32"]),
    (["--global-batch-size", "32", "--batch-size", "16"], ["--global-batch-size 32", "--batch-size 16"]),
    (["--image-size", "31"], ["--image-size 31", "32"]),
    (["--set", "intra_op_threads=0"], ["--set intra_op_threads=0", "at least 1"]),
    (["--set", "intra_op_threads=0", "--", "true"], ["--set intra_op_threads=0", "at least 1"]),
    (["--steps-per-call", "0"], ["--steps-per-call 0", "at least 1"]),
    (
        ["--steps-per-call", "3", "--set", "steps_per_window=10"],
        ["--set steps_per_window=10", "use 12 with --steps-per-call 3"],
    ),
    (
        ["--strategy", "mirrored", "--keras", "3", "--api", "fit", "--steps-per-call", "2"],
        ["--steps-per-call 2", "--api loop or --keras 2"],
    ),
    (["--gradient-dtype", "float64", "--strategy", "mirrored"], ["float64", "bfloat16"]),
    (["--gradient-dtype", "bfloat16", "--strategy", "parameter-server"], ["no effect", "mirrored, multiworker"]),
    (
        ["--gradient-dtype", "bfloat16", "--strategy", "mirrored", "--", "true"],
        ["--gradient-dtype bfloat16", "COMMAND"],
    ),
    (["--bytes-per-pack", "9", "--strategy", "mirrored", "--", "true"], ["--bytes-per-pack 9", "all_reduce"]),
    (["--set", "alpha=0.4"], ["--set alpha=0.4", "0.35"]),
    (["--batch-size", "0"], ["--batch-size 0"]),
    (["--steps", "5"], ["--steps 5", "--set warmup_steps=0"]),
    (["--steps", "30", "--epochs", "1"], ["--steps 30", "--epochs 1"]),
    (["--epochs", "2"], ["--epochs 2", "--steps"]),
    (["--set", "learning_rate=0"], ["--set learning_rate=0"]),
    (["--set", "learning_rate=nan"], ["--set learning_rate=nan"]),
    (["--set", "bn_momentum=1"], ["--set bn_momentum=1"]),
    (["--set", "optimizer=adagrad"], ["adagrad", "sgd"]),
    (["--api", "estimator"], ["--api estimator: TensorFlow has no tf.estimator since 2.16; use loop or fit, or"]),
    (["--set", "ema=1"], ["--set ema=1: must be more than 0 and less than 1", "omit it"]),
    (["--set", "ema=nan"], ["--set ema=nan"]),
    (["--set", "ema=0.9", "--", "true"], ["--set ema=0.9", "COMMAND"]),
    (["--set", "memory_limit=0"], ["--set memory_limit 0: must be from 1 byte to 1024G"]),
    (["--precision", "float16"], ["float16", "mixed_float16"]),
    (["--model", "resnet"], ["resnet", "mobilenet_v2"]),
    (["--preset", "big"], ["big", "reference"]),
    (["--dataset", "imagenet"], ["imagenet", "tfds:NAME"]),
    (["--dataset", "tfds:no_such_set"], ["no_such_set"]),
    (["--dataset", "folder:/no/such"], ["/no/such"]),
    (["--dataset", "digits", "--set", "classes=7"], ["--set classes=7", "10"]),
    (["--dataset", "digits", "--batch-size", "100000"], ["100000", "--batch-size"]),
    (["--set", "evaluate=true"], ["--set", "evaluate=true", "held-out"]),
    (["--keras", "3", "--api", "fit", "--strategy", "multiworker"], ["--keras 3", "--keras 2"]),
    (["--keras", "3", "--strategy", "central-storage"], ["central-storage", "--keras 2"]),
    (["--keras", "3", "--strategy", "parameter-server"], ["parameter-server", "--keras 2"]),
    (["--port", "0", "--strategy", "multiworker"], ["--port 0"]),
    (["--port", "70000", "--strategy", "multiworker"], ["--port 70000"]),
    (["--port", "5000"], ["--port 5000", "omit --port"]),
    (["--port", "65535", "--strategy", "multiworker", "--workers", "2"], ["--port 65535", "65534"]),
    (["--strategy", "multiworker", "--devices", "2"], ["--devices 2", "omit --devices"]),
    (["--strategy", "multiworker", "--devices", "2", "--", "true"], ["--devices 2", "omit --devices"]),
    (["--keras", "3", "--precision", "mixed_float16", "--strategy", "mirrored"], ["mixed_float16", "--keras 2"]),
    (["--model", "tiny", "--set", "bn_momentum=0.5"], ["--set bn_momentum=0.5", "tiny"]),
    (["--dataset", "digits", "--set", "data_dir=/nowhere"], ["--set data_dir=/nowhere", "digits"]),
    (["--env", "TF_USE_LEGACY_KERAS=0"], ["TF_USE_LEGACY_KERAS=0", "--keras"]),
    (["--env", "TFDIST_SPEC={}"], ["TFDIST_SPEC", "omit it"]),
    (["--set", "shuffle=10"], ["--set shuffle=10", "synthetic"]),
    (["--set", "seed=5000000000"], ["5000000000"]),
    (["--strategy", "parameter-server", "--set", "variable_partitioner=fixed:\u00b2"], ["fixed:N"]),
    (["--timeout", "0"], ["--timeout 0"]),
    (["--start-timeout", "0"], ["--start-timeout 0: must be 1 to 1000000 seconds", "omit it for 60"]),
    (["--start-timeout", "nan"], ["--start-timeout nan"]),
    (["--grace-period", "-1"], ["--grace-period -1: must be at least 0"]),
    (["--grace-period", "inf"], ["--grace-period inf"]),
    (["--launcher-timeout", "4"], ["--launcher-timeout 4: must be 5 to 1000000 seconds", "omit it for 60"]),
    (["--launcher-timeout", "8"], ["--launcher-timeout 8", "no effect without --hosts"]),
    (["--no-such-option"], ["--no-such-option"]),
    (["--inherit", "tf-config"], ["--inherit tf-config: TF_CONFIG is not set"]),
    (["--inherit", "slurn"], ["--inherit slurn: did you mean slurm?"]),
    (["--inherit", "slurm"], ["--inherit slurm: SLURM_STEP_NODELIST is not set"]),
    (["--inherit", "auto", "--strategy", "parameter-server"], ["--inherit auto", "no cluster", "3 tasks"]),
    (["--no-wait-for-peers"], ["--no-wait-for-peers: has no effect without --inherit"]),
    (["--", "no-such-program"], ["no-such-program"]),
    (["--", "python", "no_such.py"], ["no_such.py"]),
    (["no_such.py"], ["no_such.py"]),
    (["--steps", "20", "--", "true"], ["--steps 20", "COMMAND"]),
]


@pytest.mark.parametrize(("arguments", "says"), WRONG, ids=lambda value: " ".join(value))
def test_wrong_input_is_one_sentence(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert run(["launch", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tfdist: ")
    assert err.count("\n") == 1
    for words in says:
        assert words in err
    assert list(tmp_path.iterdir()) == []


def test_tf_config_in_the_environment_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {}}')
    for command in (["launch", "--preset", "smoke"], ["launch", "--", "true"], ["bench", "--suite", "smoke"]):
        assert run(command) == 2
        assert "--inherit", "tf-config" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tf_config", "more", "says"),
    [
        ("{}", [], "TF_CONFIG"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 3}}', [], "worker:3"),
        (
            '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}',
            ["--workers", "3"],
            "--workers 3",
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}',
            ["--strategy", "mirrored"],
            "mirrored",
        ),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}', ["--port", "5000"], "--port 5000"),
    ],
)
def test_an_inherited_tf_config_that_contradicts_is_refused(monkeypatch, tmp_path, capsys, tf_config, more, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TF_CONFIG", tf_config)
    assert run(["launch", "--inherit", "tf-config", *more, "--", "true"]) == 2
    assert says in capsys.readouterr().err


def test_an_inherited_tf_config_may_have_more_workers_than_this_machine_has_gpus(monkeypatch):
    two = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
    monkeypatch.setenv("TF_CONFIG", two)
    machine = Machine((0, 1), ("A100",), ("0",))
    asked = Request({}, ("true",), inherit=Inherit().read(os.environ))
    request = plan(asked, {LOCAL: machine})
    (only,) = request.job.plans
    assert only.program.env["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_busy_port_is_refused_before_any_process_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = ["--strategy", "multiworker", "--port", port, "--", "touch", "ran"]
        assert run(["launch", *command]) == 2
        assert f"localhost: port {port} cannot be used" in capsys.readouterr().err
        assert run(["launch", "--dry-run", *command]) == 2
    assert not (tmp_path / "ran").exists()


def test_a_runs_folder_that_is_not_writable_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    assert run(["launch", "--runs-dir", str(tmp_path / "file"), "--", "true"]) == 2
    assert "--runs-dir" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["launch", "--", "true"], ["launch", "--preset", "smoke"], ["bench", "--dry-run"]])
def test_gpus_that_nvidia_smi_does_not_list_are_refused_unless_hidden(command, capsys, monkeypatch, tmp_path):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpus, "GPU_DEVICES", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert run(command) == 69
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tfdist: localhost: /dev has 1 GPU, but nvidia-smi lists none, so tasks would use the CPU; ")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert run([*command[:1], "--dry-run", *command[1:]]) == 0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["launch", "--hostfile", "/dev/zero", "--", "true"], "--hostfile /dev/zero: larger than 4 MiB"),
        (["launch", "--env-file", "/dev/zero", "--", "true"], "--env-file /dev/zero: larger than 4 MiB"),
        (["launch", "--config", "/dev/zero", "--", "true"], "--config /dev/zero: larger than 4 MiB"),
        (["bench", "--suite", "/dev/zero", "--dry-run"], "--suite /dev/zero: larger than 4 MiB"),
        (["launch", "--config", "deep.toml", "--", "true"], "--config deep.toml: not TOML (nested too deeply)"),
        (["bench", "--suite", "deep.toml", "--dry-run"], "the suite deep.toml is not TOML: nested too deeply"),
    ],
)
def test_endless_and_deeply_nested_files_are_refused(arguments, what, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("deep.toml").write_text("a = " + "[" * 20_000 + "]" * 20_000)
    assert run(arguments) == 2
    assert what in capsys.readouterr().err


def test_a_hostfile_and_an_env_file_may_be_streams(tmp_path):
    for read, text, expected in (
        (lambda path: [host.name for host in parse_hostfile(path)], b"h1\nh2\n", ["h1", "h2"]),
        (read_env_file, b"A=1\n", {"A": "1"}),
    ):
        reading, writing = os.pipe()
        os.write(writing, text)
        os.close(writing)
        assert read(Path(f"/dev/fd/{reading}")) == expected
        os.close(reading)


@pytest.mark.parametrize("command", [["compare", "loop", "loop"], ["report", "loop"], ["bench", "--resume", "loop"]])
def test_a_link_to_itself_as_a_folder_is_refused(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    assert run(command) == 2
    assert capsys.readouterr().err.count("\n") == 1
