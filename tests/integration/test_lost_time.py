"""Planted faults are found under their own names: a slow rank, a slow map function, a slow link."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from .training import stderr

TFDIST = [sys.executable, "-m", "tfdist.cli"]
TIMES = """
preset = "smoke"
rounds = 4
incarnations = 1
turn = 0.6
warmup = 0.3
window = 0.3
"""
SLOW_MS = 30.0
ONE_HOST = f"""
name = "faults"
{TIMES}
arms = [
  {{ name = "slow rank", strategy = "multiworker", workers = 2, slow_worker = 1, slow_ms = {SLOW_MS} }},
  {{ name = "slow map", strategy = "multiworker", workers = 2, dataset = "folder:images" }},
]
[defaults]
model = "tiny"
classes = 2
batch_size = 8
"""
MBIT = 100.0
TWO_HOSTS = f"""
name = "link"
explain = true
{TIMES}
arms = [{{ name = "slow link", strategy = "multiworker", workers = 2, hosts = 2 }}]
[defaults]
model = "tiny"
alpha = 1.0
classes = 20000 # 2.7 MB of gradients
batch_size = 8
"""
SIDE = 600
"""Pixels of the images: decoding a batch takes many times as long as a step of the model."""


def parts_of(folder: Path, arm: str) -> dict[str, float]:
    """Milliseconds per step by name, in the last report."""
    report = json.loads((folder / "report.json").read_text())
    (section,) = (each for each in report["sections"] if each["key"] == "lost-time")
    (table,) = section["tables"]
    (row,) = (row for row in table["rows"] if row["arm"] == arm)
    return {key.removesuffix("_ms"): value for key, value in row.items() if key.endswith("_ms") and value is not None}


def answer_of(folder: Path) -> str:
    report = json.loads((folder / "report.json").read_text())
    return " ".join(text for each in report["sections"] if each["key"] == "lost-time" for text in each["answer"])


def check_sum(parts: dict[str, float]) -> None:
    named = {name: ms for name, ms in parts.items() if name not in ("step", "ideal", "loss")}
    assert sum(named.values()) == pytest.approx(parts["loss"])
    assert parts["step"] - parts["ideal"] == pytest.approx(sum(named.values()))


def check_traces(folder: Path) -> None:
    """Every task of every arm has one that TensorBoard reads, with the operations of its steps."""
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    files = list(folder.glob("*/*/plugins/profile/*/*.xplane.pb"))
    tasks = {f"{file.parts[-6].partition('-')[2]}/{file.parts[-5]}" for file in files}  # 01-slow-rank
    assert tasks >= {"one-device/worker-0", "no-strategy/worker-0", "slow-rank/worker-0", "slow-rank/worker-1"}
    for file in files:
        space = XSpace.FromString(file.read_bytes())
        names = {each.name for plane in space.planes for each in plane.event_metadata.values()}
        assert any("Conv2D" in name for name in names), file


def largest(parts: dict[str, float]) -> str:
    return max(parts.keys() - {"step", "ideal", "loss"}, key=lambda part: parts[part])


@pytest.mark.thorough
def test_a_slow_rank_is_waiting_and_a_slow_map_function_is_input_and_all_arms_are_traced(tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for label in ("a", "b"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(10):
            picture = Image.effect_noise((SIDE, SIDE), 50).convert("RGB")
            picture.save(tmp_path / "images" / label / f"{number}.png", compress_level=1)
    (tmp_path / "faults.toml").write_text(ONE_HOST)
    command = [*TFDIST, "bench", "--suite", "faults.toml", "--explain", "--trace", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + stderr(tmp_path / "out")
    slow, data = parts_of(tmp_path / "out", "slow rank"), parts_of(tmp_path / "out", "slow map")
    for parts in (slow, data):
        check_sum(parts)
        assert abs(parts["timing_difference"]) < 0.4 * parts["loss"]
    assert 0.75 * SLOW_MS < slow["waiting"] < 2.5 * SLOW_MS  # more on a busy machine
    assert largest(slow) == "waiting"
    assert largest(data) == "input"
    assert data["input"] > 0.5 * data["loss"]
    assert "worker-1 is the last one in" in answer_of(tmp_path / "out")
    check_traces(tmp_path / "out" / "traces")


@pytest.mark.thorough
def test_a_slow_link_is_exchange_and_agrees_with_the_floor_of_a_ring(launcher, net):
    suite = launcher.script(TWO_HOSTS, "link.toml")
    with net.hosts[1].limit_mbit(MBIT):
        arguments = ("--hosts", "h1,h2", "--suite", suite, "--out", "bench")
        done = launcher.run(*arguments, command="bench", timeout_s=800)
    assert done.code == 0, done.err[-4000:]
    folder = launcher.folder / "bench"
    parts = parts_of(folder, "slow link")
    check_sum(parts)
    turns = [json.loads(line) for line in (folder / "turns.jsonl").read_text().splitlines()]
    observed = next(turn["observed"] for turn in turns if turn["arm"] == "slow link")
    gradient_bytes = observed["worker-0"]["step_times"]["gradient_bytes"]
    assert gradient_bytes > 2.6e6
    floor_ms = 1000 * gradient_bytes * 8 / (MBIT * 1e6)  # two ranks: each sends 2(n-1)/n = 1 times the bytes
    assert 0.9 * floor_ms < parts["exchange"] < 1.25 * floor_ms
    assert "The link is the limit: a ring needs at least" in answer_of(folder)
