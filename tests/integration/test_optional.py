"""Launches, `doctor` and `stop` on a Python without some function that other Pythons have: launcher, agents and tasks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.optional import REMOVALS, WITHOUT_CTYPES, without
from tests.waiting import wait_until
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName

TFDIST = [sys.executable, "-m", "tfdist.cli"]
TRAINING = ["--preset", "smoke", "--model", "tiny", "--dataset", "digits", "--steps", "20"]
OPTIONS = {
    StrategyName.MIRRORED: ("--devices", "2"),
    StrategyName.CENTRAL_STORAGE: ("--devices", "2"),
    StrategyName.MULTI_WORKER: ("--workers", "2"),
    StrategyName.PARAMETER_SERVER: ("--workers", "2"),
    StrategyName.BETWEEN_GRAPH: ("--workers", "2"),
    StrategyName.IN_GRAPH: ("--workers", "2"),
    StrategyName.INDEPENDENT: ("--workers", "2"),
}
ON_CPUS = [name for name in CATALOG if name not in (StrategyName.TPU, StrategyName.EXTERNAL)]
ALL = "\n".join(REMOVALS.values())


def run(folder: Path, removal: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """A tfdist command on a Python without what `removal` removes; `folder` is empty."""
    env = {**os.environ, **without(folder / "site", [removal])}
    return subprocess.run([*TFDIST, *words], cwd=folder, env=env, capture_output=True, text=True)


def train(folder: Path, removal: str, strategy: StrategyName) -> None:
    done = run(folder, removal, "launch", "--strategy", strategy, *OPTIONS.get(strategy, ()), *TRAINING, "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "ok"


@pytest.mark.slow
def test_a_training_runs_without_any_of_them(tmp_path: Path, survivors: Callable[[], list[str]]) -> None:
    train(tmp_path, ALL, StrategyName.MULTI_WORKER)
    assert survivors() == []


@pytest.mark.slow
@pytest.mark.parametrize("removal", [ALL, WITHOUT_CTYPES], ids=["all", "ctypes"])
def test_doctor_passes_without_any_of_them(removal: str, tmp_path: Path) -> None:
    done = run(tmp_path, removal, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("setsid", "pidfd_open", "libc") else [pytest.mark.thorough])
        for name in REMOVALS
    ],
)
def test_a_program_runs_without_each(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, REMOVALS[name], "launch", "--strategy", "independent", "--workers", "2", "--", "true")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pidfd_open", pytest.param("pidfd_send_signal", marks=pytest.mark.thorough)])
def test_a_launcher_without_a_socket_is_stopped_by_its_pid(
    name: str, tmp_path: Path, survivors: Callable[[], list[str]]
) -> None:
    env = {**os.environ, **without(tmp_path / "site", [REMOVALS[name]])}
    words = ["launch", "--strategy", "one-device", "--", "sh", "-c", "echo ready; exec sleep 600"]
    with subprocess.Popen([*TFDIST, *words], cwd=tmp_path, env=env, stdout=-1, stderr=-1, text=True) as launcher:
        logs = lambda: [log.read_text() for log in tmp_path.glob("runs/*/attempt-0/*/stdout.log")]  # noqa: E731
        wait_until(lambda: logs() == ["ready\n"] or launcher.poll() is not None)
        assert launcher.poll() is None
        next(tmp_path.glob("runs/*/control.sock")).unlink()
        stop = subprocess.run([*TFDIST, "stop", "last"], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert stop.returncode == 0, stop.stderr
        assert launcher.wait(30) == 128 + signal.SIGTERM
        launcher.communicate()
    assert survivors() == []


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ON_CPUS)
@pytest.mark.parametrize("name", REMOVALS)
def test_every_strategy_trains_without_each(name: str, strategy: StrategyName, tmp_path: Path) -> None:
    train(tmp_path, REMOVALS[name], strategy)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("name", REMOVALS)
def test_doctor_passes_without_each(name: str, tmp_path: Path) -> None:
    assert run(tmp_path, REMOVALS[name], "doctor").returncode == 0
