"""Benches in turns with real processes: what is measured, and what is left when a task or tfdist itself ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.waiting import wait_until

TFDIST = [sys.executable, "-m", "tfdist.cli"]
PROGRAM = Path(__file__).with_name("turns_program.py")
ARMS = """
name = "turns"
incarnations = 1
turn = 0.1
warmup = 0.1
window = 0.05
timeout = 60
arms = [
  { name = "one", strategy = "one-device" },
  { name = "multi", strategy = "multiworker", workers = 2 },
  { name = "ps", strategy = "parameter-server", workers = 1, ps = 1 },
]
"""
LIMIT_S = 300.0
"""Time limit of a bench, and of what it does first, on a busy machine."""
LEFT_S = 15.0
"""Time after the end of tfdist, however it ended, when no process may be left."""


class Bench:
    """`tfdist bench` with three arms, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        (folder / "suite.toml").write_text(ARMS)

    @contextmanager
    def running(self, rounds: int) -> Iterator["subprocess.Popen[str]"]:
        """Start it, and wait until the first round has been measured."""
        options = ["--suite", "suite.toml", "--rounds", str(rounds), "--out", "out", "--", sys.executable, str(PROGRAM)]
        command = [*TFDIST, "bench", *options]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True) as process:
            wait_until(lambda: len(self.turns()) >= 3 or process.poll() is not None, LIMIT_S)
            try:
                yield process
            finally:
                process.kill()

    def resume(self, *options: str) -> "subprocess.CompletedProcess[str]":
        command = [*TFDIST, "bench", "--quiet", "--resume", "out", *options]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S)

    def turns(self) -> list[dict[str, Any]]:
        return read_lines(self.out / "turns.jsonl")

    def rounds(self, arm: str) -> list[int]:
        return sorted({turn["round"] for turn in self.turns() if turn["arm"] == arm})

    def events(self, arm: str) -> list[dict[str, Any]]:
        (path,) = self.out.glob(f"runs/*-{arm}-i1/events.jsonl")
        return read_lines(path)

    def record(self, arm: str) -> dict[str, Any]:
        records = [each for each in read_lines(self.out / "records.jsonl") if each["arm"] == arm]
        return records[-1]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON in the lines of a file that may be growing."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survivors: Callable[[], list[str]]) -> Iterator[Bench]:
    """Checks that no process is left in the end."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    yield Bench(tmp_path)
    wait_until(lambda: not survivors(), LEFT_S)


def parked(bench: Bench, arm: str) -> bool:
    """Whether the tasks of an arm wait while another one has its turn."""
    kinds = [event for event in bench.events(arm) if event["kind"] in ("NextTurn", "Event")]
    return kinds[-1]["kind"] == "Event" and kinds[-1]["event"]["event"] == "barrier"


def test_an_arm_whose_task_is_killed_while_parked_is_a_row_and_the_others_finish(bench, survivors):
    with bench.running(rounds=8) as process:
        wait_until(lambda: parked(bench, "multi"), LIMIT_S)
        (pid,) = (event["pid"] for event in bench.events("multi") if event.get("task") == "worker-1" and "pid" in event)
        os.kill(pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert survivors() == []
    reason = "worker-1 was killed by SIGKILL (not by tfdist)"
    assert f"multi: failed: {reason}" in out
    assert (bench.record("multi")["status"], bench.record("multi")["reason"]) == ("failed", reason)
    assert bench.rounds("one") == bench.rounds("ps") == list(range(1, 9))
    assert 1 <= len(bench.rounds("multi")) < 8
    for turn in bench.turns():
        for windows in turn["windows"].values():
            assert [window["steps"] for window in windows] == [5, 5]
            assert sum(window["elapsed_s"] for window in windows) >= 0.1
    orders = [turn["order"] for turn in bench.turns()]
    assert orders == sorted(set(orders))


def test_after_ctrl_c_the_turns_are_kept_and_a_resumed_bench_measures_the_rest(bench, survivors):
    with bench.running(rounds=20) as process:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert survivors() == []
    before = bench.turns()
    assert 3 <= len(before) < 60
    assert (bench.out / "report.md").exists()
    rounds = max(turn["round"] for turn in before)
    with (bench.out / "turns.jsonl").open("a") as turns:  # as a kill during a write leaves it
        turns.write('{"format": 2, "arm": "on')
    resumed = bench.resume("--rounds", str(rounds))
    assert resumed.returncode == 0, resumed.stderr
    lines = (bench.out / "turns.jsonl").read_text().splitlines()
    lines.remove('{"format": 2, "arm": "on')
    turns = [json.loads(line) for line in lines]
    assert turns[: len(before)] == before
    measured = {(turn["arm"], turn["round"]) for turn in turns}
    assert measured == {(arm, number) for arm in ("one", "multi", "ps") for number in range(1, rounds + 1)}


def test_a_killed_bench_leaves_no_process(bench, survivors):
    with bench.running(rounds=20) as process:
        process.kill()
    wait_until(lambda: not survivors(), LEFT_S)
    assert len(bench.turns()) >= 3
    assert {bench.record(arm)["status"] for arm in ("one", "multi", "ps")} == {"ok"}


@pytest.mark.thorough
def test_trainings_of_three_strategies_take_turns(bench, survivors):
    times = 'preset = "smoke"\nturn = 0.6\nwarmup = 0.6\nwindow = 0.2'
    suite = ARMS.replace("turn = 0.1\nwarmup = 0.1\nwindow = 0.05", times)
    (bench.folder / "suite.toml").write_text(suite.replace(" }", ', model = "tiny" }'))
    command = [*TFDIST, "bench", "--suite", "suite.toml", "--rounds", "3", "--out", "out"]
    done = subprocess.run(command, cwd=bench.folder, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert survivors() == []
    tasks = {"one": {"worker-0"}, "multi": {"worker-0", "worker-1"}, "ps": {"chief-0", "worker-0", "ps-0"}}
    measuring = {**tasks, "ps": {"chief-0"}}
    for arm in tasks:
        assert bench.rounds(arm) == [1, 2, 3]
    lengths = []
    for turn in bench.turns():
        assert set(turn["windows"]) == measuring[turn["arm"]]
        lengths.append(max(sum(window["elapsed_s"] for window in windows) for windows in turn["windows"].values()))
        (host,) = turn["hosts"]
        assert set(host["cpu_s"]) == tasks[turn["arm"]]
        assert host["seconds"] > lengths[-1]
        assert host["busy_s"] > 0
    assert 0.3 < median(lengths) < 1.2, "wanted: 0.6 s"


@pytest.mark.thorough
def test_the_second_start_of_an_arm_with_xla_reads_the_program_of_the_first(bench, survivors, monkeypatch):
    monkeypatch.setenv("TF_CPP_VMODULE", "device_executable_persistor=1")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    suite = ARMS.replace("incarnations = 1", 'incarnations = 2\nrounds = 2\npreset = "smoke"')
    arms = '  { name = "multi", strategy = "multiworker", workers = 2, model = "tiny", xla = true },\n]'
    (bench.folder / "suite.toml").write_text(f"{suite.partition('arms')[0]}arms = [\n{arms}\n")
    command = [*TFDIST, "bench", "--suite", "suite.toml", "--out", "out", "--quiet"]
    done = subprocess.run(command, cwd=bench.folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert survivors() == []
    logs = {start: bench.out.glob(f"runs/*-multi-i{start}/attempt-0/worker-*/stderr.log") for start in (1, 2)}
    reads = {start: ["Loading cached entry" in path.read_text() for path in paths] for start, paths in logs.items()}
    assert len(reads[1]) == 2
    assert not all(reads[1]), "its workers start at the same time, so one may read what the other has compiled"
    assert reads[2] == [True, True]
    assert not (bench.out / "xla-cache").exists()
    assert all(rank["environment"].get("TF_XLA_FLAGS", "") == "" for rank in bench.record("multi")["ranks"])
