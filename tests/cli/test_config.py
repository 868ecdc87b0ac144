"""Job files: `launch --config` and `--save-config`."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.cli.config import _toml
from tfdist.cli.main import run

toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    folder = tmp_path / "it's; new"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TF_CONFIG", raising=False)


def plans(capsys, *arguments):
    """The tasks of a dry run."""
    assert run(["launch", "--dry-run", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


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
    ("timeout = 'soon'", 'job.toml: timeout = "soon": must be a number'),
    ("xla = 1", "job.toml: xla = 1: must be true or false"),
    ("name = 5", "job.toml: name = 5: must be a string"),
    ("hosts = 'h1'", 'job.toml: hosts = "h1": must be a list of strings, such as ["a", "b"]'),
    ("command = 'python x.py'", 'job.toml: command = "python x.py": must be a list of strings, such as ["a", "b"]'),
    ("env = {A = true}", 'job.toml: env = {"A" = true}: A must be a string or a number'),
    ("batch_size = 1\nbatch-size = 2", "job.toml: batch-size: given twice; keep one of batch_size and batch-size"),
    ("workers =", "--config job.toml: not TOML ("),
    ("strategy = 'mirored'", "job.toml: strategy = mirored: did you mean mirrored? Choose from auto, "),
    ("workers = 0\nstrategy = 'multiworker'", "job.toml: workers = 0: "),
    ("timeout = 0", "job.toml: timeout = 0: must be positive; remove it for no limit"),
    ("log_limit = 10", "job.toml: log_limit = 10: must be a string"),
    ("log_limit = 'much'", "job.toml: log_limit = much: give bytes, for example 1K, 64K or 256M"),
    ("log_limit = '0'", "job.toml: log_limit = 0: must be from 1 byte to 1024G"),
    ("preset = 'smoke'\ncommand = ['true']", "job.toml: preset = smoke is for the built-in training"),
    ("evaluate = true", "job.toml: evaluate = true: "),
    ("port = 5000", "job.toml: port = 5000"),
    ("hosts = ['a,,b']", "job.toml: hosts = 'a,,b': empty entry"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_a_wrong_key_or_value_is_named_with_the_file(text, message, capsys):
    assert refusal(text, capsys).startswith(message)


def test_a_wrong_value_of_the_command_line_does_not_blame_the_file(capsys):
    assert refusal("workers = 2", capsys, "--workers", "0", "--strategy", "multiworker").startswith("--workers 0: ")


def test_a_missing_job_file_is_named(capsys):
    assert run(["launch", "--config", "none.toml"]) == 2
    assert "--config none.toml: No such file" in capsys.readouterr().err


SAVED = [
    ["--strategy", "multiworker", "--workers", "3", "--", "echo", "a b", 'c"\\d', "é\x7f\t"],
    ["--preset", "smoke", "--strategy", "mirrored", "--devices", "2", "--cross-device", "hierarchical-copy"],
    ["--preset", "smoke", "--learning-rate", "1e-05", "--no-evaluate", "--xla", "--seed", "3", "--keras", "2"],
    ["--strategy", "one-device", "--env", "A=1", "-x", "B=x=y z", "--timeout", "7.5", "--", "true"],
]


@pytest.mark.parametrize("arguments", SAVED, ids=" ".join)
def test_a_saved_file_plans_the_same_job(arguments, capsys):
    saved, loaded = plans(capsys, "--save-config", "job.toml", *arguments), plans(capsys, "--config", "job.toml")
    for task in (*saved, *loaded):
        task["env"].pop("TF_CONFIG", None)  # each call chooses free ports
    assert loaded == saved


def test_options_of_the_environment_and_of_the_file_are_saved_too(capsys, monkeypatch):
    Path("one.toml").write_text('command = ["true"]\nstrategy = "multiworker"\n')
    monkeypatch.setenv("TFDIST_WORKERS", "3")
    plans(capsys, "--config", "one.toml", "--save-config", "two.toml")
    monkeypatch.delenv("TFDIST_WORKERS")
    assert toml.loads(Path("two.toml").read_text()) == {
        "strategy": "multiworker",
        "workers": 3,
        "command": ["true"],
    }


def test_a_saved_launch_runs_as_usual(capsys):
    assert run(["launch", "--save-config", "job.toml", "--strategy", "one-device", "--", "echo", "hi"]) == 0
    out, err = capsys.readouterr()
    assert "[worker-0] hi" in out
    assert "tfdist launch --config job.toml" in err


def test_values_of_secret_variables_are_left_out_of_a_saved_file(capsys, monkeypatch):
    arguments = ["--strategy", "one-device", "--env", "API_TOKEN=hunter2", "--env", "A=1", "--", "true"]
    assert run(["launch", "--dry-run", "--save-config", "job.toml", *arguments]) == 0
    assert "job.toml does not hold the value of API_TOKEN" in capsys.readouterr().err
    assert toml.loads(Path("job.toml").read_text())["env"] == ["API_TOKEN", "A=1"]
    monkeypatch.setenv("API_TOKEN", "hunter3")
    assert run(["launch", "--dry-run", "--config", "job.toml"]) == 0


def test_a_command_with_a_secret_is_not_saved(capsys):
    command = ["--strategy", "one-device", "--", "env", "API_TOKEN=hunter2", "true"]
    assert run(["launch", "--save-config", "job.toml", *command]) == 2
    err = capsys.readouterr().err
    assert "command holds a secret" in err
    assert "hunter2" not in err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("arguments", [["--workers", "0", "--strategy", "multiworker"], ["--", "no-such-program"]])
def test_nothing_is_saved_for_wrong_input(arguments):
    assert run(["launch", "--save-config", "job.toml", *arguments]) == 2
    assert list(Path().iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(capsys):
    assert run(["launch", "--save-config", "no/job.toml", "--", "true"]) == 2
    assert "--save-config no/job.toml: No such file or directory" in capsys.readouterr().err


scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()


@given(scalars | st.lists(scalars) | st.dictionaries(st.text(), scalars))
def test_values_survive_a_round_trip_through_toml(value):
    if all(not 0xD800 <= ord(char) < 0xE000 for char in repr(value)):
        assert toml.loads(f"key = {_toml(value)}") == {"key": value}


def test_a_job_file_limits_the_logs_and_the_end_says_what_is_cut(capfd):
    code = (
        "import os; print('x' * 9_999); os.write(int(os.environ['TFDIST_EVENTS_FD']), b'{\"event\": \"x\"}\\n' * 999)"
    )
    Path("job.toml").write_text("log_limit = '2K'\nstrategy = 'one-device'\n")
    assert run(["launch", "--config", "job.toml", "--", sys.executable, "-c", code]) == 0
    (folder,) = Path("runs").iterdir()
    (warning,) = json.loads((folder / "outcome.json").read_text())["warnings"]
    assert warning.endswith(": cut at log_limit, 2,048 bytes; set a larger log_limit in the job file")
    assert set(warning.partition(":")[0].split(", ")) == {"events.jsonl", "attempt-0/worker-0/stdout.log"}
    assert capfd.readouterr().err.endswith(f"\nwarning: {warning}\n")
    assert (folder / "events.jsonl").stat().st_size < 3000
    assert run(["launch", "--help"]) == 0
    assert "log-limit" not in capfd.readouterr().out
