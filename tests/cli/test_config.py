"""Job files: `launch --config`."""

import json
import sys
from pathlib import Path

import pytest

from tfdist.cli.command import run
from tfdist.models.spec import TrainingSpec

pytestmark = pytest.mark.usefixtures("odd_folder")


def plans(capsys, *arguments):
    """The tasks of a dry run."""
    assert run(["launch", "--dry-run", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)["tasks"]


def refusal(text, capsys, *arguments):
    """The message about a job file with this text, without `tfdist: `."""
    Path("job.toml").write_text(text)
    assert run(["launch", "--config", "job.toml", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("tfdist: ").rstrip("\n")


def test_a_job_file_holds_the_options_and_the_command(capsys):
    Path("job.toml").write_text(
        'strategy = "multiworker"\nworkers = 3\ncommand = ["echo", "a b", "--workers", "7"]\nkeras = 3\n'
        '[env]\nA = "1"\nB = 2\n'
    )
    tasks = plans(capsys, "--config", "job.toml")
    assert [task["task"] for task in tasks] == ["worker-0", "worker-1", "worker-2"]
    assert {task["command"] for task in tasks} == {"echo 'a b' --workers 7"}
    assert all((task["env"]["A"], task["env"]["B"]) == ("1", "2") for task in tasks)
    assert all(task["env"]["TF_USE_LEGACY_KERAS"] == "0" for task in tasks)


@pytest.mark.parametrize("key", ["batch_size", "batch-size"])
def test_a_key_is_written_with_underscores_or_hyphens(key, capsys):
    Path("job.toml").write_text(f'{key} = 7\npreset = "smoke"\nevaluate = false\nlearning_rate = 1\n')
    (task,) = plans(capsys, "--config", "job.toml")
    assert json.loads(task["env"]["TFDIST_SPEC"])["batch_size"] == 7


def test_the_command_line_overrides_the_environment_which_overrides_the_file(capsys, monkeypatch):
    Path("job.toml").write_text('strategy = "multiworker"\nworkers = 3\ncommand = ["true"]\nenv = ["A=file"]\n')
    monkeypatch.setenv("TFDIST_WORKERS", "4")
    monkeypatch.setenv("TFDIST_CONFIG", "job.toml")
    assert len(plans(capsys)) == 4
    tasks = plans(capsys, "--workers", "2", "--env", "B=1", "--", "false")
    assert [task["command"] for task in tasks] == ["false"] * 2
    assert "A" not in tasks[0]["env"]


WRONG = [
    ("wokers = 2", "job.toml: wokers: no such key; did you mean workers?"),
    ("zzz = 2", "job.toml: zzz: no such key; the keys are the options of 'tfdist launch --help'"),
    ("no_evaluate = true", "job.toml: no_evaluate: no such key; use evaluate = false"),
    ("dry_run = true", "job.toml: dry_run: not for a job file; use --dry-run on the command line"),
    ('workers = "two"', 'job.toml: workers = "two": must be an integer'),
    ("workers = true", "job.toml: workers = true: must be an integer"),
    ("workers = 2.5", "job.toml: workers = 2.5: must be an integer"),
    ("xla = 1", "job.toml: xla = 1: must be true or false"),
    ("name = 5", "job.toml: name = 5: must be a string"),
    ("hosts = 'h1'", 'job.toml: hosts = "h1": must be a list of strings, such as ["a", "b"]'),
    ("command = 'python x.py'", 'job.toml: command = "python x.py": must be a list of strings, such as ["a", "b"]'),
    ("env = {A = true}", 'job.toml: env = {"A": true}: A must be a string or a number'),
    ("batch_size = 1\nbatch-size = 2", "job.toml: batch-size: given twice; keep one of batch_size and batch-size"),
    ("workers =", "--config job.toml: not TOML ("),
]
WRONG_VALUES = [
    ("timeout = 'soon'", "--timeout soon: give a duration, as 5s"),
    ("timeout = 0", "--timeout 0: must be positive"),
    ("strategy = 'mirored'", "--strategy mirored: did you mean mirrored? Choose from auto, "),
    ("workers = 0\nstrategy = 'multiworker'", "--workers 0: "),
    ("log_limit = 'much'", "--set log_limit much: give bytes, for example 1K, 64K or 256M"),
    ("log_limit = 0", "--set log_limit 0: must be from 1 byte to 1024G"),
    ("preset = 'smoke'\ncommand = ['true']", "--preset smoke is for the built-in training"),
    ("evaluate = true", "--set evaluate=true: "),
    ("port = 5000", "--port 5000"),
    ("hosts = ['a,,b']", "--hosts 'a,,b': empty entry"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_a_wrong_key_or_value_is_named_with_the_file(text, message, capsys):
    assert refusal(text, capsys).startswith(message)


@pytest.mark.parametrize(("text", "message"), WRONG_VALUES, ids=[text for text, _ in WRONG_VALUES])
def test_a_wrong_value_is_named_as_the_option_with_the_file(text, message, capsys):
    sentence = refusal(text, capsys)
    assert sentence.startswith(message)
    assert sentence.endswith(" (set by job.toml)")


def test_a_wrong_value_of_the_command_line_does_not_blame_the_file(capsys):
    assert refusal("workers = 2", capsys, "--workers", "0", "--strategy", "multiworker").startswith("--workers 0: ")


def test_a_missing_job_file_is_named(capsys):
    assert run(["launch", "--config", "none.toml"]) == 2
    assert "--config none.toml: No such file" in capsys.readouterr().err


def test_a_file_plans_the_job_of_the_same_options(capsys):
    Path("job.toml").write_text(
        "preset = 'smoke'\nstrategy = 'mirrored'\ndevices = 2\nxla = true\nkeras = 2\nenv = {A = 1}\n"
        "learning_rate = 1e-5\nevaluate = false\nseed = 3\nstall_timeout = 7.5\n"
    )
    options = "--preset smoke --strategy mirrored --devices 2 --xla --keras 2 --env A=1 --stall-timeout 7.5"
    settings = "--set learning_rate=1e-5 --set evaluate=false --set seed=3"
    assert plans(capsys, "--config", "job.toml") == plans(capsys, *options.split(), *settings.split())


def seed_of(capsys, *arguments):
    (task,) = plans(capsys, "--preset", "smoke", "--strategy", "one-device", *arguments)
    return TrainingSpec.from_env(task["env"]).seed


def test_a_setting_is_taken_from_the_command_line_before_a_variable_before_the_file(capsys, monkeypatch):
    Path("job.toml").write_text("seed = 1\n")
    assert seed_of(capsys, "--config", "job.toml") == 1
    monkeypatch.setenv("TFDIST_SEED", "2")
    assert seed_of(capsys, "--config", "job.toml") == 2
    assert seed_of(capsys, "--config", "job.toml", "--set", "seed=3") == 3
    assert seed_of(capsys, "--set", "seed=3", "--set", "seed=4") == 4


def test_a_job_file_limits_the_logs_and_the_end_says_what_is_cut(capfd):
    code = (
        "import os; print('x' * 9_999); os.write(int(os.environ['TFDIST_EVENTS_FD']), b'{\"event\": \"x\"}\\n' * 999)"
    )
    Path("job.toml").write_text("log_limit = '2K'\nstrategy = 'one-device'\n")
    assert run(["launch", "--config", "job.toml", "--", sys.executable, "-c", code]) == 0
    (folder,) = Path("runs").iterdir()
    (warning,) = json.loads((folder / "outcome.json").read_text())["warnings"]
    assert warning.endswith(": cut at log_limit, 2,048 bytes; allow more with --set log_limit=100G")
    assert set(warning.partition(":")[0].split(", ")) == {"events.jsonl", "attempt-0/worker-0/stdout.log"}
    assert capfd.readouterr().err.endswith(f"\nwarning: {warning}\n")
    assert (folder / "events.jsonl").stat().st_size < 3000
