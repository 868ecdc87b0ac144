"""Batches lie on the device of their replica. On three virtual CPU devices, which need a process of their own."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PRINT_DEVICES = """
import json
import tensorflow as tf
from tfdist.launch.cluster import Task
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import feed
from tfdist.models.training.context import TrainingContext
from tfdist.strategies.build import build
from tfdist.strategies.options import StrategyName

first = TrainingSpec(strategy=StrategyName.MIRRORED, devices=3, image_size=32, batch_size=2, classes=10, shuffle=8)
strategies = {StrategyName.MIRRORED: build(first)}
strategies[StrategyName.CENTRAL_STORAGE] = tf.distribute.experimental.CentralStorageStrategy(
    ["CPU:0", "CPU:1", "CPU:2"], parameter_device="CPU:0")
strategies[StrategyName.ONE_DEVICE] = tf.distribute.OneDeviceStrategy("CPU:2")
found = {}
for name, strategy in strategies.items():
    for dataset in ("synthetic", "digits"):
        spec = TrainingSpec.from_json({**first.to_json(), "strategy": name, "dataset": dataset})
        batches = feed.synchronous(TrainingContext(spec, strategy, Task("worker", 0), 1))
        images, labels = batches.draw(batches.source)
        found[f"{name} {dataset}"] = [
            [value.device.rpartition(":")[2] for value in strategy.experimental_local_results(part)]
            for part in (images, labels)
        ]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def devices():
    done = subprocess.run([sys.executable, "-c", PRINT_DEVICES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("dataset", ["synthetic", "digits"])
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("mirrored", ["0", "1", "2"]), ("central-storage", ["0", "1", "2"]), ("one-device", ["2"])],
)
def test_each_batch_lies_on_the_device_of_its_replica(strategy, dataset, expected, devices):
    assert devices[f"{strategy} {dataset}"] == [expected, expected]
