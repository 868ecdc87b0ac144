"""The options about checkpoints and restarts: their values, and what is refused."""

import json
import os
from pathlib import Path

import pytest

from tfdist.cli.command import run
from tfdist.jobs.options import RECOVERY_OPTIONS
from tfdist.jobs.plan import plan
from tfdist.jobs.recovery import Recovery, read_recovery
from tfdist.jobs.request import Request
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import Machine
from tfdist.launch.policy import Policy, RestartOn
from tfdist.models.checkpoints import KEEP, Checkpointing

pytestmark = pytest.mark.usefixtures("odd_folder")


def tasks(capsys, *arguments):
    """The tasks of a dry run."""
    assert run(["launch", "--dry-run", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)["tasks"]


def checkpointing(task):
    return Checkpointing.from_env(task["env"])


def test_nothing_given_means_no_checkpoints_and_the_policy_as_it_is(capsys):
    assert read_recovery({"keep": None}) == Recovery()
    (task,) = tasks(capsys, "--preset", "smoke")
    assert "TFDIST_CHECKPOINT_DIR" not in task["env"]
    assert checkpointing(task) is None


@pytest.mark.parametrize(
    ("text", "steps", "seconds"),
    [("200", 200, None), (" 7 ", 7, None), ("30s", None, 30.0), ("10m", None, 600.0), ("1.5h", None, 5400.0)],
)
def test_an_interval_is_steps_or_a_duration(text, steps, seconds):
    recovery = read_recovery({"checkpoint_every": text})
    assert recovery.checkpoint_every == (steps, seconds)


def test_the_fields_of_the_policy():
    values = {"max_restarts": 3, "restart_on": RestartOn.FAILURE, "min_workers": 2, "stop_on_nan": True}
    recovery = read_recovery({**values, "stall_timeout": 60.0})
    assert Policy(**recovery.policy) == Policy(**values, stall_timeout_s=60.0)
    assert Policy(**read_recovery({"stall_timeout": 0.0}).policy).stall_timeout_s is None


def test_the_defaults_in_the_help_are_those_of_the_program():
    help_of = {option.name: option.text for option in RECOVERY_OPTIONS}
    assert help_of["keep"].endswith(f"Default: {KEEP}.")
    assert help_of["restart_on"].endswith(f"Default: {Policy().restart_on}.")
    assert help_of["stall_timeout"].endswith(f"Default: {Policy().stall_timeout_s / 60:g}m.")


def test_a_folder_becomes_absolute_but_a_url_stays():
    folders = {"a/../b c": f"{Path.cwd()}/b c", "gs://bucket/x": "gs://bucket/x", "file:///d": "/d", "~": None}
    for text, absolute in folders.items():
        assert read_recovery({"checkpoint_dir": text}).checkpoint_dir == (absolute or str(Path.home()))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"checkpoint_every": "0"}, "--checkpoint-every 0: must be positive"),
        ({"checkpoint_every": "-5"}, "--checkpoint-every -5: must be positive"),
        ({"checkpoint_every": "0s"}, "--checkpoint-every 0s: must be positive"),
        ({"checkpoint_every": "1.5"}, "--checkpoint-every 1.5: give a number of steps, as 200, or a duration, as"),
        ({"checkpoint_every": ""}, "--checkpoint-every : give a number"),
        ({"checkpoint_every": "10 days"}, "--checkpoint-every 10 days: give a number"),
        ({"checkpoint_dir": ""}, "--checkpoint-dir '': not the name of a folder"),
        ({"checkpoint_dir": "a\nb"}, r"--checkpoint-dir 'a\nb': not the name of a folder"),
        ({"checkpoint_dir": "\udcff"}, r"--checkpoint-dir '\udcff': not the name of a folder"),
        ({"keep": 0}, "--set keep=0: must be at least 1"),
        ({"max_restarts": -1}, "--max-restarts -1: must be at least 0"),
        ({"restart_on": RestartOn.ANY}, "--set restart_on=any: has no effect without --max-restarts"),
        (
            {"restart_on": RestartOn.ANY, "max_restarts": 0},
            "--set restart_on=any: has no effect without --max-restarts",
        ),
        ({"min_workers": 2}, "--min-workers 2: has no effect without --max-restarts"),
        ({"min_workers": 0, "max_restarts": 1}, "--min-workers 0: must be at least 1"),
    ],
)
def test_wrong_values(values, sentence):
    with pytest.raises(TfdistError) as caught:
        read_recovery(values)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--checkpoint-every", "5", "--", "true"], ["--checkpoint-every 5 is for the built-in training", "COMMAND"]),
        (["--set", "keep=5", "--", "true"], ["--set keep=5 is for the built-in training"]),
        (["--set", "evaluator=true", "--", "true"], ["--set evaluator=true is for the built-in training"]),
        (["--set", "keep=2"], ["--set keep=2: has no effect without --checkpoint-every"]),
        (
            ["--set", "evaluator=true", "--preset", "smoke"],
            ["--set evaluator=true: synthetic has no held-out examples", "digits"],
        ),
        (["--strategy", "independent", "--checkpoint-every", "5"], ["--strategy independent", "no checkpoint"]),
        (["--strategy", "independent", "--max-restarts", "1"], ["--max-restarts 1: has no effect"]),
        (["--strategy", "independent", "--max-restarts", "1", "--", "true"], ["--max-restarts 1: has no effect"]),
        (["--strategy", "mirrored", "--max-restarts", "1", "--min-workers", "1"], ["no effect under --strategy mirr"]),
        (
            ["--strategy", "multiworker", "--workers", "2", "--max-restarts", "1", "--min-workers", "3"],
            ["--min-workers 3: more than the 2 workers"],
        ),
        (["--strategy", "multiworker", "--max-restarts", "1", "--min-workers", "1"], ["without other hosts"]),
        (
            ["--strategy=between-graph", "--sync", "--set", "backup_workers=1", "--max-restarts=1", "--min-workers=1"],
            ["--min-workers 1: a step needs", "--set backup_workers=1; use 2 or more"],
        ),
        (["--set", "restart_on=falure", "--max-restarts", "1"], ["--set restart_on=falure: did you mean failure?"]),
        (["--stall-timeout", "-1"], ["--stall-timeout -1: must be at least 0"]),
        (["--stall-timeout", "nan"], ["--stall-timeout nan: give a duration"]),
        (["--max-restarts", "many"], ["--max-restarts many: must be an integer"]),
    ],
)
def test_what_would_have_no_effect_is_refused(arguments, words, capsys):
    assert run(["launch", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert [word for word in words if word not in err] == []
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-restarts", "1", "--", "true"], "--max-restarts 1: has no effect with --inherit tf-config"),
        (
            ["--preset", "smoke", "--dataset", "digits", "--set", "evaluator=true"],
            "--set evaluator=true: has no effect with --inherit tf-",
        ),
        (["--preset", "smoke", "--checkpoint-every", "5"], "--checkpoint-every 5: with --inherit tf-config, each task"),
        (["--preset", "smoke", "--checkpoint-every", "5", "--checkpoint-dir", "/shared", "--dry-run"], None),
        (["--max-restarts", "0", "--dry-run", "--", "true"], None),
    ],
)
def test_one_inherited_task_needs_a_common_folder_and_is_not_restarted(arguments, words, capsys, monkeypatch):
    cluster = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}'
    monkeypatch.setenv("TF_CONFIG", cluster)
    assert run(["launch", "--inherit", "tf-config", *arguments]) == (0 if words is None else 2)
    err = capsys.readouterr().err
    assert words is None or err.startswith(f"tfdist: {words}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--preset", "smoke", "--checkpoint-every", "5"],
        ["--preset", "smoke", "--max-restarts", "1"],
        ["--preset", "smoke", "--dataset", "digits", "--set", "evaluator=true"],
        ["--max-restarts", "1", "--", "true"],
    ],
)
def test_the_default_folder_is_in_the_folder_of_the_run(arguments, capsys):
    for task in tasks(capsys, *arguments):
        assert task["env"]["TFDIST_CHECKPOINT_DIR"] == f"{Path.cwd()}/runs/TIME-launch/checkpoints"
    assert list(Path().iterdir()) == []


def test_every_task_of_the_training_receives_how_it_is_saved(capsys):
    options = ["--checkpoint-every", "5", "--checkpoint-dir", "c k", "--set", "keep=7", "--dataset", "digits"]
    planned = tasks(capsys, "--preset", "smoke", "--strategy", "multiworker", "--set", "evaluator=true", *options)
    assert [task["task"] for task in planned] == ["worker-0", "worker-1", "evaluator-0"]
    for task in planned:
        assert checkpointing(task) == Checkpointing(f"{Path.cwd()}/c k", 5, None, 7)


def test_a_program_receives_the_folder_only(capsys):
    (task,) = tasks(capsys, "--checkpoint-dir", "here", "--", "true")
    assert task["env"]["TFDIST_CHECKPOINT_DIR"] == f"{Path.cwd()}/here"
    assert checkpointing(task) is None


def test_a_program_on_several_hosts_has_no_folder_unless_one_is_chosen():
    machines = {Host(name): Machine((0,), (), slots=1) for name in ("a", "b")}
    for values, folder in (({"max_restarts": 2}, None), ({"max_restarts": 2, "checkpoint_dir": "/shared"}, "/shared")):
        planned = plan(Request({}, ("true",), recovery=read_recovery(values)), machines)
        assert (planned.checkpointing and planned.checkpointing.folder) == folder
        assert any("no TFDIST_CHECKPOINT_DIR" in note for note in planned.notes) == (folder is None)


def test_a_number_of_steps_in_a_job_file_needs_no_quotes(capsys):
    Path("job.toml").write_text('preset = "smoke"\ncheckpoint_every = 5\n')
    (task,) = tasks(capsys, "--config", "job.toml")
    assert checkpointing(task).every_steps == 5


def test_a_message_names_the_job_file_or_the_variable(capsys, monkeypatch):
    Path("job.toml").write_text("keep = 0\n")
    assert run(["launch", "--config", "job.toml"]) == 2
    assert capsys.readouterr().err == "tfdist: --set keep=0: must be at least 1 (set by job.toml)\n"
    monkeypatch.setenv("TFDIST_KEEP", "0")
    assert run(["launch"]) == 2
    assert capsys.readouterr().err == "tfdist: --set keep=0: must be at least 1 (set by TFDIST_KEEP)\n"


def test_a_folder_that_cannot_be_used_is_refused_before_any_task_starts(capsys):
    Path("file").touch()
    for folder, why in (("file", "is a file, not a folder"), ("file/x", "cannot be written (Not a directory)")):
        assert run(["launch", "--checkpoint-dir", folder, "--", "touch", "ran"]) == 2
        assert f"localhost: the checkpoint folder {Path.cwd()}/{folder} {why}; choose" in capsys.readouterr().err
    assert not Path("ran").exists()


@pytest.mark.parametrize(("name", "character"), [("a[b]", "["), ("a\\b", "\\")])
def test_a_folder_that_tensorflow_cannot_read_is_refused_for_the_built_in_training(
    name, character, capsys, monkeypatch
):
    Path(name).mkdir()
    why = f"TensorFlow cannot read checkpoints in a folder with {character} in its path; choose another one"
    assert run(["launch", "--checkpoint-dir", name]) == 2
    assert f"{Path.cwd()}/{name}: {why}" in capsys.readouterr().err
    monkeypatch.chdir(name)
    assert run(["launch", "--max-restarts", "1"]) == 2
    assert f"{Path.cwd()}/runs: {why}" in capsys.readouterr().err
    assert run(["launch", "--dry-run", "--max-restarts", "1", "--", "true"]) == 0
    assert list(Path().iterdir()) == []


def test_the_folder_is_created_and_given_to_the_program(capsys):
    code = "import os; open(os.environ['TFDIST_CHECKPOINT_DIR'] + '/saved', 'w').close()"
    for options in (["--checkpoint-dir", "new/[c] $k"], ["--max-restarts", "1"]):
        assert run(["launch", *options, "--", "python", "-S", "-c", code]) == 0
    (run_dir,) = (path.parent for path in Path("runs").glob("*/checkpoints"))
    assert os.listdir("new/[c] $k") == os.listdir(run_dir / "checkpoints") == ["saved"]  # noqa: PTH208
    assert json.loads((run_dir / "spec.json").read_text())["checkpointing"]["folder"] == str(
        run_dir.absolute() / "checkpoints"
    )
