"""tfdist export: what is refused before TensorFlow is started."""

import json
from pathlib import Path

import pytest

from tests.cli.checkpoint_files import save_checkpoint, save_run
from tfdist.cli.command import run
from tfdist.strategies.choice import StrategyChoice

OLD, NEW = "20260101T120000Z-launch", "20260102T120000Z-launch"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["last", "taken"], "TARGET taken: exists already; choose another name"),
        (["last", "gs://b/model"], "TARGET gs://b/model: must be a local path; export there, then copy it"),
        (["last", "link"], "TARGET link: exists already; choose another name"),
        (["last", "new"], f"RUN last: {NEW} was started without checkpoints; give another run"),
        ([OLD, "new"], f"RUN {OLD}: no checkpoint in "),
        (["nope", "new"], "RUN nope: no such run in runs"),
        (["mine", "new"], "RUN mine: ran your own program; only the built-in training can be exported"),
        (["damaged", "new"], "RUN damaged: no complete checkpoint in "),
        (["gs://b/ck", "new"], "RUN gs://b/ck: its checkpoints are in gs://b/ck; copy that folder here"),
        (["last"], "Missing argument 'TARGET'; see 'tfdist export --help'"),
    ],
)
def test_what_is_refused(arguments, message, capsys):
    save_run("20251231T120000Z-mine", spec=StrategyChoice(), command=("python", "train.py"))
    save_run(OLD), save_run(NEW, saved=False)
    save_checkpoint(Path("damaged"), 50)
    Path("damaged", "step-00000050.index").unlink()
    Path("taken").mkdir()
    Path("link").symlink_to("nowhere")
    assert run(["export", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"tfdist: {message}")
    assert not Path("new").exists()


def test_steps_that_another_run_has_added_to_the_folder_are_not_exported(capsys):
    run_dir = save_run(OLD, 50)
    event = {
        "kind": "Event",
        "task": "worker-0",
        "attempt": 0,
        "time": 1.0,
        "event": {"event": "checkpoint", "step": 20},
    }
    run_dir.events.write_text(json.dumps(event) + "\n")
    assert run(["export", OLD, "new"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"RUN {OLD}: its last checkpoint, of step 20, is no longer in {run_dir.checkpoints}; export that" in err
