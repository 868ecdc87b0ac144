"""Programs of one's own in a bench: both examples under the strategies that need a different loop or callback."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tfdist.bench

CONVERT = Path(__file__).parents[2] / "docs" / "convert.md"
EXAMPLES = Path(__file__).parents[2] / "examples"
SUITE = """
rounds = 2
incarnations = 1
turn = 1
warmup = 0.5
window = 0.2
[[arms]]
name = "one-device"
strategy = "one-device"
[[arms]]
name = "multiworker"
strategy = "multiworker"
workers = 2
[[arms]]
name = "parameter-server"
strategy = "parameter-server"
workers = 2
ps = 1
"""
EXAMPLES_PER_STEP = {"one-device": 32, "multiworker": 64, "parameter-server": 32}


@pytest.mark.thorough
@pytest.mark.parametrize("example", ["keras_fit.py", "custom_loop.py"])
def test_the_examples_are_measured_in_turns(example, tmp_path, survivors):
    (tmp_path / "suite.toml").write_text(SUITE)
    program = ["python", str(EXAMPLES / example)]
    folder = tfdist.bench.run(tmp_path / "suite.toml", program=program, out=tmp_path / "out")
    assert survivors() == []
    arms = tfdist.bench.load(folder).set_index("arm")
    assert set(arms.index) == set(EXAMPLES_PER_STEP)
    assert (arms["status"] == "ok").all(), arms["reason"].to_list()
    assert (arms["rounds"] == 2).all()
    windows = tfdist.bench.load(folder, rows="windows")
    assert len(windows.groupby(["arm", "round"])) == 6
    for arm, of_arm in windows.groupby("arm"):
        of_job = of_arm.groupby(["round", "window"]).agg({"steps": "first", "examples": "sum"})
        assert (of_job["examples"] == of_job["steps"] * EXAMPLES_PER_STEP[arm]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("index", range(4), ids=["keras", "keras converted", "loop", "loop converted"])
def test_the_scripts_of_convert_md_train_alone_and_converted_in_a_bench(index, tmp_path, survivors):
    scripts = re.findall("```python\n(.*?)```", CONVERT.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "train.py").write_text(scripts[index])
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True)
    if index % 2 == 0:
        return
    (tmp_path / "suite.toml").write_text(SUITE)
    arms = ["one-device", "multiworker", *(["parameter-server"] if index == 1 else [])]
    program = ["python", str(tmp_path / "train.py")]
    folder = tfdist.bench.run(tmp_path / "suite.toml", arms=arms, program=program, out=tmp_path / "out")
    assert survivors() == []
    table = tfdist.bench.load(folder)
    assert (table["status"] == "ok").all(), table["reason"].to_list()


ADDS_ONE = """
import json, os
import tensorflow as tf
import tfdist.measure

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type != "chief":
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    ).join()
strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)

@tf.function
def step():
    total.assign_add(1.0, use_locking=True)

for _ in tfdist.measure.steps(range(1000), examples=1, coordinator=coordinator):
    coordinator.schedule(step)
coordinator.join()
with open(os.environ["TOTAL"], "w") as file:
    file.write(str(int(total.numpy())))
"""


@pytest.mark.thorough
def test_a_coordinator_of_ones_own_applies_every_counted_step(tmp_path, monkeypatch):
    (tmp_path / "suite.toml").write_text(SUITE)
    (tmp_path / "train.py").write_text(ADDS_ONE)
    monkeypatch.setenv("TOTAL", str(tmp_path / "total"))
    program = ["python", str(tmp_path / "train.py")]
    folder = tfdist.bench.run(tmp_path / "suite.toml", arms=["parameter-server"], program=program, out=tmp_path / "out")
    path = folder / "records.jsonl"
    steps = tfdist.bench.load(folder, rows="windows")["steps"].sum()
    total = int((tmp_path / "total").read_text())
    assert f'"updates_applied": {total}' in path.read_text()
    assert steps < total
