"""`tfdist launch --resume` and `tfdist export`, through the command."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

TRAINING = ["launch", "--preset", "smoke", "--model", "tiny", "--quiet", "--json", "--no-prefix"]

LOADS = "import keras, sys; assert keras.saving.load_model(sys.argv[1]).input_shape == (None, 32, 32, 3)"

pytestmark = pytest.mark.thorough


def tfdist(*arguments, code=0):
    """The last line of stdout as JSON, and stderr."""
    command = [sys.executable, "-m", "tfdist", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def losses(run_dir):
    """The loss at each step that was reported."""
    events = [json.loads(line) for line in Path(run_dir, "events.jsonl").read_text().splitlines()]
    steps = [event["event"] for event in events if event["kind"] == "Event" and event["event"]["event"] == "step"]
    return {step["step"]: step["loss"] for step in steps}


def break_data(folder, step):
    """Change a byte of a checkpoint's values."""
    path = Path(folder, f"step-{step:08d}.data-00000-of-00001")
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def test_a_run_is_resumed_twice_and_exported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole, _ = tfdist(*TRAINING, "--steps", 60)
    first, _ = tfdist(*TRAINING, "--steps", 20, "--checkpoint-every", 10)
    folder = Path(first["run_dir"], "checkpoints").absolute()
    _, refused = tfdist("launch", "--resume", "last", "--json", code=2)
    assert "has trained 20 of 20 steps" in refused
    second, _ = tfdist("launch", "--resume", "last", "--steps", 40, "--quiet", "--json")
    break_data(folder, 40)
    third, warning = tfdist("launch", "--resume", "last", "--steps", 60, "--quiet", "--json")
    assert "step-00000040 is damaged" in warning
    expected = losses(whole["run_dir"])
    for run in (second, third):
        resumed = losses(run["run_dir"])
        common = resumed.keys() & expected.keys()  # the edges of windows depend on the speed
        assert max(resumed) in common
        assert [resumed[step] for step in common] == pytest.approx([expected[step] for step in common], rel=1e-4)
    assert (min(losses(second["run_dir"])) > 20, min(losses(third["run_dir"])) in range(31, 41)) == (True, True)
    exported, _ = tfdist("export", "last", "it's a model.keras", "--json")
    assert (exported["step"], exported["kind"]) == (60, "Keras file")
    subprocess.run([sys.executable, "-c", LOADS, "it's a model.keras"], check=True)
    break_data(folder, 60)
    exported, warning = tfdist("export", "last", "model", "--json")
    assert (exported["step"] < 60, Path("model", "saved_model.pb").exists()) == (True, True)
    assert "step-00000060 cannot be read" in warning


def test_sigterm_saves_and_the_printed_command_continues(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [*TRAINING, "--steps", "1000000", "--checkpoint-dir", "it's; here*"]
    launcher = subprocess.Popen([sys.executable, "-m", "tfdist", *command], stdout=-1, stderr=-1, text=True)
    try:
        wait_until(
            lambda: '"event": "step"' in "".join(path.read_text() for path in Path().glob("runs/*/events.jsonl")),
            seconds=120.0,
        )
        launcher.send_signal(signal.SIGTERM)
        _, err = launcher.communicate(timeout=60)
    finally:
        launcher.kill()
    assert launcher.returncode == 42, err
    (run_dir,) = Path("runs").iterdir()
    assert f"\n  resume: tfdist launch --resume {run_dir} " in err
    _, refused = tfdist(*command, code=2)
    assert "it holds a checkpoint of step" in refused
    (manifest,) = Path("it's; here*").glob("*.json")
    step = json.loads(manifest.read_text())["step"]
    again, _ = tfdist("launch", "--resume", run_dir, "--steps", step + 30, "--quiet", "--json")
    assert min(losses(again["run_dir"])) > step
