"""The commands as a user types them, with real trainings."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TFDIST = [sys.executable, "-m", "tfdist.cli"]
EXAMPLES = Path(__file__).parents[2] / "examples"
ENDLESS = [
    "launch",
    "--strategy",
    "multiworker",
    "--workers",
    "2",
    "--preset",
    "smoke",
    "--model",
    "tiny",
    "--steps",
    "1000000",
]
pytestmark = pytest.mark.slow


def tfdist(*arguments, cwd):
    """Run the command without a terminal; the JSON of its last line, if it has one."""
    done = subprocess.run([*TFDIST, *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture
def folder(tmp_path):
    odd = tmp_path / "it's; new"
    odd.mkdir()
    return odd


@pytest.mark.parametrize(
    "cluster",
    [
        ["one-device"],
        ["mirrored", "--devices", "2"],
        ["multiworker", "--workers", "2"],
        ["central-storage", "--devices", "2"],
        ["parameter-server", "--workers", "2"],
        ["independent", "--workers", "2"],
    ],
    ids=" ".join,
)
def test_every_strategy_trains_and_ends_0(cluster, folder, survivors):
    told, err = tfdist("launch", "--strategy", *cluster, "--preset", "smoke", "--steps", "30", "--json", cwd=folder)
    assert told["status"] == "ok"
    assert told["images_per_s"] > 0
    assert all(loss < 2.3 for loss in told["loss"].values())
    assert told["updates_applied"] == 30
    assert "step 30" in err
    assert "oneDNN" not in err
    assert "oneDNN" in next((folder / told["run_dir"]).glob("attempt-0/*/stderr.log")).read_text()
    if cluster[0] == "multiworker":
        assert told["loss"]["worker-0"] == told["loss"]["worker-1"]
    assert survivors() == []
    done = subprocess.run([*TFDIST, "report", told["run_dir"]], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert cluster[0] in (folder / told["run_dir"] / "report.md").read_text()


@pytest.mark.parametrize(
    ("cluster", "script"),
    [
        (["multiworker", "--workers", "2"], "keras_fit.py"),
        (["multiworker", "--workers", "2"], "tf_config_only.py"),
        (["parameter-server", "--workers", "1"], "keras_fit.py"),
        (["mirrored", "--devices", "2"], "keras_fit.py"),
    ],
    ids=str,
)
def test_a_program_of_ones_own(cluster, script, folder):
    told, _ = tfdist("launch", "--strategy", *cluster, "--json", "--", "python", str(EXAMPLES / script), cwd=folder)
    assert told["status"] == "ok"
    assert told["tasks"]["worker-0"]["peak_memory_bytes"] > 100e6


def test_ctrl_c_in_a_training_leaves_no_process_no_port_and_no_temporary_file(folder, survivors, monkeypatch):
    temporary = folder / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    launcher = subprocess.Popen(
        [*TFDIST, *ENDLESS], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in launcher.stdout:
        if " step " in line:
            break
    launcher.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, err
    assert "interrupted by SIGINT" in err
    assert time.monotonic() - began < 15
    assert survivors() == []
    assert list(temporary.iterdir()) == []
    (run_dir,) = (folder / "runs").iterdir()
    for plan in json.loads((run_dir / "cluster.json").read_text()):
        own = json.loads(plan["env"]["TF_CONFIG"])
        port = own["cluster"]["worker"][own["task"]["index"]].rpartition(":")[2]
        assert not listening(int(port))
    assert not list(run_dir.rglob(".*"))


def listening(port):
    """Whether anything on this machine listens on a TCP port (proc(5), /proc/net/tcp: state 0A)."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def test_a_worker_that_is_killed_is_named_and_the_other_one_is_its_casualty(folder, survivors):
    launcher = subprocess.Popen(
        [*TFDIST, *ENDLESS, "--json"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in launcher.stderr:
        if " step " in line:
            break
    (events,) = (folder / "runs").glob("*/events.jsonl")
    started = [json.loads(line) for line in events.read_text().splitlines() if '"Started"' in line]
    os.kill(next(event["pid"] for event in started if event["task"] == "worker-1"), signal.SIGKILL)
    out, err = launcher.communicate(timeout=60)
    told = json.loads(out.splitlines()[-1])
    assert launcher.returncode == told["exit_code"] == 137
    assert told["culprit"] == "worker-1"
    assert list(told["casualties"]) == ["worker-0"]
    assert "tfdist: worker-1 was killed by SIGKILL" in err
    assert survivors() == []
