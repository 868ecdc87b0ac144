"""Programs that are right, or have one mistake, in a launch and in a bench: no accusation, or a sentence and no rank."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tfdist.bench

HERE = Path(__file__).parent
FILES = {"imported": "strategy_main.py", "protocol": "turns_program.py"}
ARMS = {
    "mirrored": {"strategy": "mirrored", "devices": 2},
    "multiworker": {"strategy": "multiworker", "workers": 2},
    "central-storage": {"strategy": "central-storage", "devices": 2},
    "external": {"strategy": "external", "workers": 2},
}
RIGHT = [
    ("fit", "mirrored"),
    ("fit", "multiworker"),
    ("fit", "central-storage"),
    ("keras3", "mirrored"),
    ("own-cluster", "multiworker"),
    ("loop", "mirrored"),
    ("loop", "multiworker"),
    ("sharded", "multiworker"),
    ("never-asks", "external"),
    ("imported", "mirrored"),
    ("in-a-function", "multiworker"),
    ("protocol", "external"),
]
WRONG = [
    ("never-asks", "mirrored", "its model was built without the strategy"),
    ("never-asks", "multiworker", "its model was built without the strategy"),
    ("no-scope", "mirrored", "its model was built without the strategy"),
    ("second-strategy", "central-storage", "but under MirroredStrategy"),
    ("ignores-tf-config", "multiworker", "its model was built without the strategy"),
    ("not-sharded", "multiworker", "its workers train on the same batches"),
    ("global-batch", "multiworker", "but the batches of all replicas together have 64 in a step"),
    ("too-late", "multiworker", "Collective ops must be configured at program startup"),
]
IN_A_LAUNCH = {"no-scope": "it built the strategy (LINE) and ran no step", "ignores-tf-config": "listened on no port"}


def program_of(kind):
    return str(HERE / FILES.get(kind, "strategy_program.py"))


def arms_of(kind, arm, tmp_path):
    """The arm of a bench of this program, as `load` gives it, and all that the report says."""
    values = "\n".join(f"{key} = {value!r}" for key, value in ARMS[arm].items())
    (tmp_path / "suite.toml").write_text(
        f'rounds = 1\nincarnations = 1\nturn = 0.5\nwarmup = 0.3\nwindow = 0.1\n[[arms]]\nname = "{arm}"\n{values}\n'
    )
    program = ["python", program_of(kind), kind]
    folder = tfdist.bench.run(tmp_path / "suite.toml", program=program, out=tmp_path / "out")
    return tfdist.bench.load(folder).set_index("arm").loc[arm], (folder / "report.md").read_text()


def launched(kind, arm, tmp_path, *words):
    """Everything that a launch prints."""
    options = [word for key, value in ARMS[arm].items() for word in (f"--{key}", str(value))]
    command = [sys.executable, "-m", "tfdist", "launch", *options, "--", "python", program_of(kind), kind, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "arm"), RIGHT)
def test_a_right_program_is_not_accused(kind, arm, tmp_path):
    row, report = arms_of(kind, arm, tmp_path)
    assert (row["status"], row["strategy_check"]) == ("ok", "confirmed"), row["reason"]
    assert "did not train under" not in report
    if kind == "protocol":
        return  # it needs turns
    code, text = launched(kind, arm, tmp_path)
    assert code == 0, text
    assert "did not train" not in text
    assert "unknown whether" not in text


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "arm", "sentence"),
    [pytest.param(*WRONG[0], marks=pytest.mark.core), *WRONG[1:]],
)
def test_a_mistake_has_a_sentence_and_no_rank(kind, arm, sentence, tmp_path):
    row, report = arms_of(kind, arm, tmp_path)
    assert row["status"] in ("refuted", "failed")
    assert sentence in report
    assert f"Use {arm}" not in report
    code, text = launched(kind, arm, tmp_path)
    assert sentence in text
    assert (code == 0) is (row["status"] == "refuted"), text


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "sentence"), IN_A_LAUNCH.items())
def test_a_launch_needs_no_call_of_measure_to_know(kind, sentence, tmp_path):
    code, text = launched(kind, "multiworker", tmp_path, "plain")
    assert code == 0, text
    text = re.sub(r"\([^()]*strategy_program\.py:\d+\)", "(LINE)", text.replace("worker-0 and worker-1 ", ""))
    assert f"the program did not train under multiworker: {sentence}" in text
