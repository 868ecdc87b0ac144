"""Programs of the shapes that TensorFlow's tutorials have: alone, in a launch, and measured in a bench.

The flag-driven one is in test_flags.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import tfdist.bench

PROGRAM = str(Path(__file__).with_name("tutorial_program.py"))
ARMS = {
    "mirrored": {"strategy": "mirrored", "devices": 2},
    "multiworker": {"strategy": "multiworker", "workers": 2},
    "parameter-server": {"strategy": "parameter-server", "workers": 2, "ps": 1},
}
SHAPES = [
    ("keras", "mirrored", 32),
    ("loop", "mirrored", 32),
    ("worker-fit", "multiworker", 32),
    ("worker-loop", "multiworker", 32),
    ("server-fit", "parameter-server", 32),
    ("server-loop", "parameter-server", 16),
]
WITHOUT_SERVERS = [shape for shape in dict.fromkeys(shape for shape, _, _ in SHAPES) if "server" not in shape]


def trained(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained" in done.stdout
    return done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("shape", WITHOUT_SERVERS)
def test_it_trains_without_a_launcher(shape, tmp_path):
    trained(sys.executable, PROGRAM, shape, cwd=tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize(("shape", "arm", "examples"), SHAPES)
def test_it_trains_in_a_launch_and_is_measured_in_a_bench(shape, arm, examples, tmp_path, survivors):
    options = [word for key, value in ARMS[arm].items() for word in (f"--{key}", str(value))]
    launched = trained(sys.executable, "-m", "tfdist", "launch", *options, "--", "python", PROGRAM, shape, cwd=tmp_path)
    for accusation in ("did not train", "unknown whether", "warning: worker"):
        assert accusation not in launched
    values = "\n".join(f"{key} = {value!r}" for key, value in ARMS[arm].items())
    times = "rounds = 2\nincarnations = 1\nturn = 0.5\nwarmup = 0.3\nwindow = 0.1\n"
    (tmp_path / "suite.toml").write_text(f'{times}[[arms]]\nname = "{arm}"\n{values}\n')
    folder = tfdist.bench.run(tmp_path / "suite.toml", program=["python", PROGRAM, shape], out=tmp_path / "out")
    assert survivors() == []
    row = tfdist.bench.load(folder).set_index("arm").loc[arm]
    assert (row["status"], row["strategy_check"], row["rounds"]) == ("ok", "confirmed", 2), row["reason"]
    windows = tfdist.bench.load(folder, rows="windows")
    of_job = windows.groupby(["round", "window"]).agg({"steps": "first", "examples": "sum"})
    assert (of_job["examples"] == of_job["steps"] * examples).all()
