"""The commands as a user types them, with real trainings. Tests of the same training share its launch."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.processes import MARK, marked_processes
from tfdist.cli.command import run
from tfdist.launch.agent_program.system import listening_ports
from tfdist.models.record import Record
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName

from .training import losses

TFDIST = [sys.executable, "-m", "tfdist.cli"]
EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = ["--preset", "smoke", "--model", "tiny"]
ENDLESS = ["launch", "--strategy", "multiworker", "--workers", "2", *TINY, "--steps", "1000000"]
STEPS = 200
# Narrower, or with longer steps, some asynchronous trainings do not learn: their units die.
QUICK = [*TINY, "--set", "alpha=1", "--dataset", "digits", "--set", "learning_rate=0.003", "--steps", str(STEPS)]
STRATEGIES = {
    "one-device": [],
    "mirrored": ["--devices", "2"],
    "multiworker": ["--workers", "2"],
    "central-storage": ["--devices", "2"],
    "parameter-server": ["--workers", "2"],
    "independent": ["--workers", "2"],
}


def launch(*arguments: str, cwd: Path, mark: str = "") -> tuple[dict[str, Any], str]:
    """The JSON summary and the stderr of a successful launch without a terminal."""
    env = {**os.environ, MARK: mark}
    done = subprocess.run([*TFDIST, "launch", "--json", *arguments], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@dataclass(frozen=True)
class Training:
    """One finished launch of the built-in training."""

    strategy: str
    summary: dict[str, Any]
    stderr: str
    run_dir: Path
    left_running: list[str]

    def record(self) -> Record:
        return Record.from_json(json.loads((self.run_dir / "records.jsonl").read_text()))


@pytest.fixture(scope="module", params=STRATEGIES)
def training(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A short training with each strategy, in a folder whose name needs quoting."""
    folder = tmp_path_factory.mktemp("training") / "it's; new"
    folder.mkdir()
    mark = uuid.uuid4().hex
    summary, stderr = launch("--strategy", request.param, *STRATEGIES[request.param], *QUICK, cwd=folder, mark=mark)
    left_running = [str(process) for process in marked_processes(mark)]
    return Training(request.param, summary, stderr, folder / summary["run_dir"], left_running)


def test_every_strategy_trains(training: Training) -> None:
    summary = training.summary
    assert summary["status"] == "ok"
    assert summary["images_per_s"] > 0
    assert all(loss < 2.3 for loss in summary["loss"].values())
    assert summary["updates_applied"] == STEPS
    if training.strategy == "multiworker":
        assert summary["loss"]["worker-0"] == summary["loss"]["worker-1"]


def test_a_training_shows_its_steps_but_not_the_logs_of_tensorflow(training: Training) -> None:
    assert f"step {STEPS}" in training.stderr
    assert "absl::InitializeLog" not in training.stderr
    assert "absl::InitializeLog" in next(training.run_dir.glob("attempt-0/*/stderr.log")).read_text()


def test_every_task_reports_its_phases_and_the_total_of_its_steps(training: Training) -> None:
    entries = [json.loads(line) for line in (training.run_dir / "events.jsonl").read_text().splitlines()]
    start = "connecting" if CATALOG[StrategyName(training.strategy)].has_cluster else "building"
    for rank in training.record().ranks:
        events = [entry["event"] for entry in entries if entry["kind"] == "Event" and entry["task"] == rank.task]
        phases = [event["phase"] for event in events if event["event"] == "phase"]
        assert phases == ["importing", start, "building", "tracing", "evaluating"]
        assert [event["steps"] for event in events if event["event"] == "step"][-1] == STEPS


def test_no_process_outlives_a_training(training: Training) -> None:
    assert training.left_running == []


def test_a_training_can_be_reported(training: Training) -> None:
    assert run(["report", str(training.run_dir)]) == 0
    assert training.strategy in (training.run_dir / "report.md").read_text()


def test_the_figures_of_a_record_add_up(training: Training) -> None:
    record = training.record()
    batch_size = record.spec["batch_size"]
    for rank in record.ranks:
        in_windows = sum(window.steps for window in (*rank.warmup, *rank.windows))
        # a parameter-server's workers have steps before and after the timed windows, and take some while an edge is read
        around = STEPS // 5 if training.strategy == "parameter-server" else 0
        assert STEPS - around <= in_windows <= STEPS
        assert rank.warmup
        assert rank.updates_applied == STEPS
        assert rank.examples_applied == STEPS * batch_size * rank.replicas
        assert 0 < rank.phases_s["trace"] < rank.phases_s["first_step_end"]
        assert rank.phases_s["import"] + rank.phases_s["build"] < rank.phases_s["first_step_end"]
        assert rank.peak_memory_bytes > 100e6
        assert rank.cpu_s > 1
        assert rank.software["keras"].startswith("tf_keras 2.")
        assert "TF_CONFIG" not in rank.environment


def test_the_ranks_of_a_record_agree_as_far_as_the_strategy_lets_them(training: Training) -> None:
    first, *others = training.record().ranks
    assert [rank.task for rank in others] == ["worker-1"] * (training.strategy in ("multiworker", "independent"))
    assert first.accuracy is not None
    for other in others:
        if training.strategy == "multiworker":
            assert first.accuracy == other.accuracy
            assert losses(first) == losses(other)
            assert [window.steps for window in first.warmup] == [window.steps for window in other.warmup]
        else:
            assert losses(first) != losses(other)  # independent workers have different data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    odd = tmp_path / "it's; new"
    odd.mkdir()
    return odd


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["one-device", "independent", "parameter-server"])  # others: test_equivalence.py
def test_mobilenet_v2_trains(strategy: str, folder: Path) -> None:
    summary, _ = launch("--strategy", strategy, *STRATEGIES[strategy], "--preset", "smoke", "--steps", "30", cwd=folder)
    assert summary["status"] == "ok"
    assert all(loss < 2.3 for loss in summary["loss"].values())
    assert summary["updates_applied"] == 30


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cluster", "script"),
    [
        (["multiworker", "--workers", "2"], "tf_config_only.py"),
        (["mirrored", "--devices", "2"], "keras_fit.py"),  # others: test_own_program.py
        (["parameter-server", "--workers", "2"], "custom_loop.py"),
    ],
    ids=str,
)
def test_the_example_programs_train(cluster, script, folder):
    summary, _ = launch("--strategy", *cluster, "--", "python", str(EXAMPLES / script), cwd=folder)
    assert summary["status"] == "ok"
    assert summary["tasks"]["worker-0"]["peak_memory_bytes"] > 100e6


@pytest.mark.thorough
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
    interrupted_at = time.monotonic()
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, err
    assert "interrupted by SIGINT" in err
    assert time.monotonic() - interrupted_at < 15
    assert survivors() == []
    assert list(temporary.iterdir()) == []
    (run_dir,) = (folder / "runs").iterdir()
    for address in json.loads((run_dir / "cluster.json").read_text())["cluster"]["worker"]:
        assert int(address.rpartition(":")[2]) not in listening_ports()
    assert not list(run_dir.rglob(".*"))


@pytest.mark.core
@pytest.mark.thorough
def test_a_killed_worker_is_the_culprit_and_the_other_worker_a_casualty(folder, survivors):
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
    summary = json.loads(out.splitlines()[-1])
    assert launcher.returncode == summary["exit_code"] == 137
    assert summary["culprit"] == "worker-1"
    assert list(summary["casualties"]) == ["worker-0"]
    assert "tfdist: worker-1 was killed by SIGKILL" in err
    assert survivors() == []


def test_a_parent_that_ignores_the_end_of_its_children_changes_nothing(folder):
    """Else no process can wait for another one."""
    command = shlex.join([*TFDIST, "launch", "--strategy", "multiworker", "--workers", "2", "--", "true"])
    script = (
        f"import os, signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp('sh', ['sh', '-c', {command!r}])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
