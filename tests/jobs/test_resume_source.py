"""--resume: what it names, what may change, and what is refused."""

import json
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.checkpoint_files import SPEC, save_checkpoint, save_run
from tests.waiting import wait_until
from tfdist.cli.command import run
from tfdist.jobs.checkpoint_source import CheckpointSource
from tfdist.jobs.inherit import Inherit
from tfdist.jobs.recovery import read_recovery
from tfdist.jobs.request import Request
from tfdist.jobs.resume_source import claimed, find_resumed, resume_command
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import read_json, save_json
from tfdist.launch.runs.launcher import this_launcher
from tfdist.models.checkpoints import Checkpointing
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

pytestmark = pytest.mark.usefixtures("odd_folder")

OLD, NEW = "20260101T120000Z-launch", "20260102T120000Z-launch"


def resumed(capsys, *arguments):
    """The spec and the checkpointing of each task of a dry run."""
    assert run(["launch", "--dry-run", "--json", *arguments]) == 0
    (task, *_) = json.loads(capsys.readouterr().out)["tasks"]
    return TrainingSpec.from_env(task["env"]), Checkpointing.from_env(task["env"])


def refusal(capsys, *arguments):
    """The one line of a refused launch, without `tfdist: `."""
    assert run(["launch", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("tfdist: ").rstrip("\n")


def test_a_run_is_continued_as_it_was_started(capsys):
    old, _ = save_run(OLD, 50, 100), save_run(NEW, saved=False)
    for name in (OLD, "20260101", f"runs/{OLD}"):
        spec, checkpointing = resumed(capsys, "--resume", name)
        assert spec == SPEC
        assert checkpointing == Checkpointing(str(old.checkpoints), 50, None, 5, resume=True)


def test_what_is_resumed_is_said_first(capsys):
    run_dir = save_run(OLD, 50, 100)
    assert run(["launch", "--dry-run", "--resume", "last"]) == 0
    assert capsys.readouterr().out.startswith(f"resumes {run_dir.checkpoints} from step 100\n\nworker-0 on")


def test_a_folder_is_continued_with_the_spec_of_its_newest_checkpoint(capsys):
    save_checkpoint(Path("c k"), 50, replace(SPEC, seed=1))
    save_checkpoint(Path("c k"), 100)
    for name in ("c k", f"{Path.cwd()}/c k/", "./c k"):
        spec, checkpointing = resumed(capsys, "--resume", name)
        assert spec == SPEC
        assert checkpointing == Checkpointing(f"{Path.cwd()}/c k", resume=True)


def test_the_run_after_a_resume_continues_in_the_same_folder(capsys):
    old = save_run(OLD, 50)
    new = save_run(NEW, saved=False)
    save_json(new.spec, read_json(old.spec))
    _, checkpointing = resumed(capsys, "--resume", "last")
    assert checkpointing.folder == str(old.checkpoints)


def test_a_runs_folder_may_have_been_moved(capsys):
    save_run(OLD, 50).path.rename("moved")
    _, checkpointing = resumed(capsys, "--resume", "./moved")
    assert checkpointing.folder == f"{Path.cwd()}/moved/checkpoints"


def test_the_same_options_may_be_given_again_and_how_it_is_saved_may_change(capsys):
    save_run(OLD, 50)
    options = ["--preset", "smoke", "--steps", "200", "--strategy", "one-device", "--batch-size", "32"]
    spec, checkpointing = resumed(capsys, "--resume", "last", *options, "--checkpoint-every", "10m", "--set", "keep=1")
    assert spec == SPEC
    assert (checkpointing.every_steps, checkpointing.every_s, checkpointing.keep) == (None, 600.0, 1)


def test_the_length_may_change(capsys):
    save_run(OLD, 50, spec=replace(SPEC, dataset="digits", examples=9999, epochs=3, evaluate=True))
    spec, _ = resumed(capsys, "--resume", "last", "--steps", "900", "--set", "evaluate=false")
    assert (spec.steps, spec.epochs, spec.examples, spec.evaluate) == (900, None, None, False)
    spec, _ = resumed(capsys, "--resume", "last", "--epochs", "10")
    assert (spec.epochs, spec.examples) == (10, None)
    assert spec.steps > SPEC.steps


def test_the_examples_of_a_run_that_has_lost_workers_are_kept(capsys):
    spec = replace(SPEC, strategy=StrategyName.MULTI_WORKER, workers=2)
    run_dir = save_run(OLD, spec=spec)
    save_checkpoint(run_dir.checkpoints, 60, replace(spec, workers=1, examples=12800))
    assert resumed(capsys, "--resume", "last")[0] == replace(spec, examples=12800)


def test_with_other_workers_the_number_of_examples_stays_unless_a_length_is_chosen(capsys):
    spec = replace(SPEC, strategy=StrategyName.MULTI_WORKER, workers=3)
    run_dir = save_run(OLD, 80, spec=spec)
    other, _ = resumed(capsys, "--resume", "last", "--workers", "2")
    assert (other.workers, other.examples, other.steps) == (2, 200 * 96, 80 + 180)
    assert run(["launch", "--dry-run", "--resume", "last", "--workers", "2"]) == 0
    assert capsys.readouterr().out.startswith(
        f"global batch 64 instead of 96, 180 steps left instead of 120\nresumes {run_dir.checkpoints} from step 80\n"
    )
    other, _ = resumed(capsys, "--resume", "last", "--workers", "2", "--steps", "300")
    assert (other.examples, other.steps) == (None, 300)


def test_epochs_with_other_workers_are_epochs_of_the_whole_training(capsys):
    spec = replace(SPEC, strategy=StrategyName.MULTI_WORKER, workers=4, dataset="digits", evaluate=True)
    save_run(OLD, 55, spec=spec)
    before, _ = resumed(capsys, "--resume", "last", "--epochs", "10")
    other, _ = resumed(capsys, "--resume", "last", "--epochs", "10", "--workers", "2")
    assert (before.examples, before.steps * 128) == (None, pytest.approx(other.examples, rel=0.03))
    assert other.steps == 55 + -(-(other.examples - 55 * 128) // 64)


@pytest.mark.parametrize("length", [[], ["--steps", "200"]])
def test_auto_keeps_the_examples_of_a_job_that_has_lost_workers(length, capsys):
    lost = replace(SPEC, strategy=StrategyName.MULTI_WORKER, workers=2, steps=300, examples=200 * 96)
    save_checkpoint(Path("ck"), 210, lost)
    options = ["--preset", "smoke", "--strategy", "multiworker", *length, "--checkpoint-dir", "ck", "--resume", "auto"]
    for workers, steps in ((3, 210 + 60), (2, 300)):
        spec, _ = resumed(capsys, *options, "--workers", str(workers))
        assert (spec.examples, spec.steps) == (200 * 96, steps)


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (["--batch-size", "16"], "--batch-size 32 (now 16)"),
        (["--set", "seed=3", "--set", "optimizer=sgd"], "--set optimizer=adam (now sgd) and --set seed=0 (now 3)"),
        (["--strategy", "mirrored"], "--strategy one-device (now mirrored)"),
        (["--preset", "cpu"], "--set alpha=0.35 (now 1.0), --image-size 32 (now 96)"),
    ],
)
def test_another_training_is_refused_with_the_difference(options, difference, capsys):
    save_run(OLD, 50)
    message = refusal(capsys, "--resume", "last", *options)
    assert message.startswith("--resume last: was trained with ")
    assert difference in message


def test_a_training_that_is_complete(capsys):
    save_run(OLD, 200)
    assert refusal(capsys, "--resume", "last").startswith("--resume last: has trained 200 of 200 steps; give more --st")
    assert resumed(capsys, "--resume", "last", "--steps", "300")[0].steps == 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume", "nope"], "--resume nope: no such run in runs"),
        (["--resume", "/no/such"], "--resume /no/such: not the folder of a run"),
        (["--resume", "2026"], "--resume 2026: 2 runs match"),
        (["--resume", "file"], "--resume file: a file; give a run, or the folder"),
        (["--resume", "empty"], "--resume empty: no checkpoint in "),
        (["--resume", "last"], f"--resume last: {NEW} was started without checkpoints; give another run"),
        (["--resume", OLD], f"--resume {OLD}: no checkpoint in "),
        (["--resume", "auto"], "--resume auto: needs --checkpoint-dir"),
        (["--resume", "nope", "--", "true"], "--resume nope: no such run in runs"),
        (["--resume", "empty", "--", "true"], "--resume empty: "),
        (["--resume", OLD, "--", "true"], f"--resume {OLD}: that run ran the built-in training; omit the COMMAND"),
    ],
)
def test_nothing_to_continue(arguments, message, capsys):
    save_run(OLD), save_run(NEW, saved=False)
    Path("file").touch()
    Path("empty").mkdir()
    assert refusal(capsys, *arguments).startswith(message)


def test_an_incomplete_checkpoint_is_skipped_and_named_if_it_is_the_only_one(capsys):
    run_dir = save_run(OLD, 50, 100)
    (run_dir.checkpoints / "step-00000100.index").unlink()
    assert run(["launch", "--dry-run", "--resume", "last"]) == 0
    assert "from step 50" in capsys.readouterr().out
    (run_dir.checkpoints / "step-00000050.json").write_text("{")
    message = refusal(capsys, "--resume", "last")
    assert "step-00000100.index is missing" in message
    assert "step-00000050.json cannot be read" in message


def test_another_folder_than_the_one_that_is_continued_is_refused(capsys):
    run_dir = save_run(OLD, 50)
    assert "omit --checkpoint-dir" in refusal(capsys, "--resume", "last", "--checkpoint-dir", "other")
    resumed(capsys, "--resume", "last", "--checkpoint-dir", str(run_dir.checkpoints))


def test_a_second_start_in_a_folder_with_checkpoints_is_refused(capsys):
    save_checkpoint(Path("ck"), 50)
    message = refusal(capsys, "--preset", "smoke", "--checkpoint-dir", "ck")
    assert message == (
        f"--checkpoint-dir {Path.cwd()}/ck: it holds a checkpoint of step 50; use --resume {Path.cwd()}/ck to continue "
        "it, or another folder"
    )


def test_auto_continues_what_exists_and_starts_otherwise(capsys):
    options = ["--preset", "smoke", "--steps", "200", "--checkpoint-dir", "ck", "--resume", "auto"]
    assert resumed(capsys, *options)[1] == Checkpointing(f"{Path.cwd()}/ck")
    save_checkpoint(Path("ck"), 50)
    assert resumed(capsys, *options)[1] == Checkpointing(f"{Path.cwd()}/ck", resume=True)


def test_auto_succeeds_if_the_training_is_complete(capsys):
    save_checkpoint(Path("ck"), 200)
    options = ["--preset", "smoke", "--steps", "200", "--checkpoint-dir", "ck", "--resume", "auto"]
    assert run(["launch", "--json", *options]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("tfdist: --resume auto: has trained 200 of 200 steps; give more --steps, or write the model")
    assert (json.loads(out)["status"], Path("runs").exists()) == ("ok", False)


def test_auto_leaves_a_folder_that_only_the_tasks_can_read_to_them(capsys):
    options = ["--preset", "smoke", "--checkpoint-dir", "s3://bucket/ck", "--resume", "auto"]
    assert resumed(capsys, *options)[1] == Checkpointing("s3://bucket/ck", resume=True, may_be_empty=True)
    recovery = read_recovery({"checkpoint_dir": "/only/there", "resume": "auto"})
    source = find_resumed(recovery, Path("runs"), (), remote=True)
    assert (source.newest, source.may_be_empty) == (None, True)
    assert find_resumed(recovery, Path("runs"), (), remote=False) is None


def test_auto_gives_a_program_its_folder_whether_or_not_it_has_saved(capsys):
    assert run(["launch", "--dry-run", "--checkpoint-dir", "ck", "--resume", "auto", "--", "true"]) == 0
    out = capsys.readouterr().out
    assert f"TFDIST_CHECKPOINT_DIR={Path.cwd()}/ck\n" in out
    assert "resumes" not in out


@pytest.mark.parametrize("options", [["--resume", "last"], ["--resume", "ck"], ["--checkpoint-dir", "ck"]])
def test_a_folder_in_which_another_run_still_saves_is_refused(options, capsys):
    run_dir = save_run(OLD, every_steps=None)
    save_json(run_dir.spec, {**read_json(run_dir.spec), "checkpointing": {"folder": f"{Path.cwd()}/ck"}})
    run_dir.outcome.unlink()
    save_json(run_dir.launcher, this_launcher().to_json())
    Path("ck").mkdir()
    assert refusal(capsys, *options) == (
        f"{Path.cwd()}/ck: {OLD} still saves checkpoints there; stop it with 'tfdist stop runs/{OLD}'"
    )


def test_a_folder_of_a_user_who_does_not_exist_is_not_found(capsys):
    assert refusal(capsys, "--resume", "~nobody-here/ck").startswith(
        "--resume ~nobody-here/ck: not the folder of a run"
    )


@pytest.mark.parametrize("options", [["--resume", "link/runs/RUN"], ["--runs-dir", "other", "--resume", "runs/RUN"]])
def test_a_run_that_still_saves_is_found_by_another_path_and_from_another_folder_of_runs(options, capsys):
    run_dir = save_run(OLD, every_steps=None)
    run_dir.checkpoints.mkdir()
    saved = {"folder": str(run_dir.checkpoints.resolve())}
    save_json(run_dir.spec, {**read_json(run_dir.spec), "checkpointing": saved})
    run_dir.outcome.unlink()
    save_json(run_dir.launcher, this_launcher().to_json())
    Path("link").symlink_to(".")
    assert "still saves checkpoints there" in refusal(capsys, *(word.replace("RUN", OLD) for word in options))


def test_a_program_is_continued_in_its_folder_with_its_strategy(capsys):
    choice = StrategyChoice(StrategyName.MULTI_WORKER, workers=2, cores_per_device=None)
    run_dir = save_run(OLD, spec=choice, command=("python", "train.py"))
    assert "--resume last: that run ran your own program; give its command again" in refusal(capsys, "--resume", "last")
    assert "holds no files" in refusal(capsys, "--resume", "last", "--", "true")
    run_dir.checkpoints.mkdir()
    (run_dir.checkpoints / "mine").touch()
    assert run(["launch", "--dry-run", "--json", "--resume", "last", "--", "true"]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert [task["task"] for task in tasks] == ["worker-0", "worker-1"]
    assert {task["env"]["TFDIST_CHECKPOINT_DIR"] for task in tasks} == {str(run_dir.checkpoints)}


def test_a_url_is_left_to_the_tasks(capsys):
    options = ["--preset", "smoke", "--resume", "gs://bucket/ck"]
    assert resumed(capsys, *options)[1] == Checkpointing("gs://bucket/ck", resume=True)
    assert run(["launch", "--dry-run", *options]) == 0
    assert "gs://bucket/ck is not checked before the start\n" in capsys.readouterr().out


def test_the_command_that_continues_a_run():
    run_dir = save_run(OLD)
    saved, words = Checkpointing(str(run_dir.checkpoints)), ["launch", "--preset", "smoke", "--env", "MY_TOKEN=hunter2"]
    command = lambda own: resume_command(words, Path("runs/it's"), saved, own=own)  # noqa: E731
    assert resume_command(words, run_dir.path, None, own=False) == command(own=False) == command(own=True) == ""
    run_dir.checkpoints.mkdir()
    assert command(own=True) == ""
    (run_dir.checkpoints / "mine").touch()
    assert command(own=False) == ""
    expected = "tfdist launch --resume 'runs/it'\"'\"'s' --preset smoke --env MY_TOKEN=***"
    assert shlex.split(command(own=True)) == shlex.split(expected)
    save_checkpoint(run_dir.checkpoints, 50)
    assert shlex.split(command(own=False)) == shlex.split(expected)


CONNECTING = """#!/bin/sh
touch {folder}/connecting
while [ ! -e {folder}/go ]; do sleep 0.05; done
shift
exec "$@"
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, signal.SIGKILL])
def test_a_folder_is_refused_while_another_launch_connects_and_free_once_it_has_ended(
    number, tmp_path, capsys, survivors
):
    (tmp_path / "connect").write_text(CONNECTING.format(folder=tmp_path))
    (tmp_path / "connect").chmod(0o755)
    hosts = [
        "-H",
        "localhost,127.0.0.2",
        "--transport",
        f"exec:{tmp_path}/connect {{host}}",
        "--python",
        sys.executable,
    ]
    words = ["launch", "--strategy", "multiworker", "--checkpoint-dir"]
    with subprocess.Popen([sys.executable, "-m", "tfdist", *words, "ck", *hosts, "--", "true"]) as first:
        try:
            wait_until(lambda: (tmp_path / "connecting").exists())
            fix = f"stop it with 'kill {first.pid}'"
            assert refusal(capsys, *words[1:], "ck", "--", "true") == (
                f"{Path.cwd()}/ck: process {first.pid} still saves checkpoints there; {fix}"
            )
            assert run([*words, "ck", "--dry-run", "--", "true"]) == 0
            assert run([*words, "other", "--", "true"]) == 0
            if number:
                first.send_signal(number)
        finally:
            (tmp_path / "go").touch()
        assert first.wait(timeout=60) == -number
    assert run([*words, "ck", "--", "true"]) == 0
    wait_until(lambda: survivors() == [])


def test_launchers_that_share_a_folder_and_dry_runs_claim_nothing():
    request = Request({}, recovery=read_recovery({"checkpoint_dir": f"{Path.cwd()}/ck"}))
    for other in (replace(request, inherit=Inherit()), replace(request, dry_run=True)):
        with claimed(other), claimed(request):
            pass
    with claimed(request):
        Path("link").symlink_to(".")
        source = CheckpointSource("--resume link/ck", f"{Path.cwd()}/link/ck")
        with (
            pytest.raises(TfdistError, match=r"link/ck: process [0-9]+ still saves checkpoints there"),
            claimed(Request({}, source=source)),
        ):
            pass
