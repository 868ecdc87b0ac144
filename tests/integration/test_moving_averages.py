"""Moving averages of the weights are the same under every strategy as in one process, and are saved with them."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tfdist.models.checkpoints import Checkpointing, list_checkpoints
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import Api, StrategyName

from .training import TINY, train

pytestmark = pytest.mark.thorough

DECAY, STEPS = 0.8, 6
SPEC = replace(
    TINY, steps=STEPS, steps_per_window=1, warmup_steps=1, learning_rate=0.01, ema=DECAY, cores_per_device=None
)
MIRRORED = replace(SPEC, strategy=StrategyName.MIRRORED, devices=2)
MULTI_WORKER = replace(SPEC, strategy=StrategyName.MULTI_WORKER, workers=2)
CENTRAL = replace(SPEC, strategy=StrategyName.CENTRAL_STORAGE, devices=2)
PS = replace(SPEC, strategy=StrategyName.PARAMETER_SERVER, workers=1, ps=2)
Averages = dict[int, tuple[np.ndarray, np.ndarray]]
"""All trainable weights and all averages, each as one vector, by step."""


def trained(spec: TrainingSpec, folder: Path, *, resume: bool = False) -> Averages:
    """Train, saving every step; the weights and averages of each checkpoint."""
    saving = Checkpointing(str(folder / "saved"), every_steps=1, keep=99, resume=resume)
    train(spec, folder, timeout_s=240.0, saving=saving)
    listing = list_checkpoints(saving.folder)
    return {each.step: vectors(f"{saving.folder}/{each.name}") for each in listing.complete}


def vectors(prefix: str) -> tuple[np.ndarray, np.ndarray]:
    """The weights and averages of a checkpoint of the tiny model."""
    import tensorflow as tf

    from tfdist.models.training.moving_averages import saved

    reader = tf.train.load_checkpoint(prefix)
    names = [f"model/layer_with_weights-{layer}/{name}" for layer in range(3) for name in ("kernel", "bias")]
    values = [reader.get_tensor(f"{name}/.ATTRIBUTES/VARIABLE_VALUE") for name in names]
    weights, averages = (np.concatenate([np.ravel(value) for value in each]) for each in (values, saved(prefix)))
    return weights, averages


def follows_the_definition(steps: Averages) -> None:
    assert sorted(steps) == list(range(1, max(steps) + 1))
    for step in range(2, max(steps) + 1):
        (weights, averages), (_, before) = steps[step], steps[step - 1]
        np.testing.assert_allclose(averages, DECAY * before + (1 - DECAY) * weights, atol=1e-6)
        assert not np.allclose(averages, weights, atol=1e-5), "the tolerance tells averages from weights"


def test_synchronous_strategies_have_the_averages_of_one_process(tmp_path):
    one = trained(replace(SPEC, batch_size=2 * SPEC.batch_size), tmp_path / "one")
    follows_the_definition(one)
    for spec in (MIRRORED, MULTI_WORKER, CENTRAL, replace(MULTI_WORKER, api=Api.FIT)):
        steps = trained(spec, tmp_path / f"{spec.strategy}-{spec.api}")
        follows_the_definition(steps)
        np.testing.assert_allclose(steps[STEPS][1], one[STEPS][1], atol=1e-5)


def test_each_step_of_parameter_servers_moves_the_averages_once(tmp_path):
    """Adam's first step changes each weight by at most the learning rate, so the averages start as the weights."""
    for workers, spec in ((1, PS), (2, replace(PS, workers=2, variable_partitioner="fixed:2"))):
        steps = trained(spec, tmp_path / str(workers))
        follows_the_definition(steps)
        weights, averages = steps[1]
        assert 0.0 < np.abs(averages - weights).max() <= DECAY * SPEC.learning_rate * 1.001


def test_a_resumed_training_continues_its_averages(tmp_path):
    """A partitioned model does so even with another number of parameter servers: other shards."""
    partitioned = replace(PS, variable_partitioner="max-size:1024")
    for name, spec, resumed in (("mirrored", MIRRORED, MIRRORED), ("ps", partitioned, replace(partitioned, ps=3))):
        trained(replace(spec, steps=3), tmp_path / name)
        steps = trained(resumed, tmp_path / name, resume=True)
        assert max(steps) == STEPS
        follows_the_definition(steps)


def test_several_workers_of_parameter_servers_lose_no_update(tmp_path):
    program = Path(__file__).with_name("count_averages.py")
    options = ["--strategy", "parameter-server", "--workers", "2", "--ps", "1", "--", "python", str(program), "200"]
    command = [sys.executable, "-m", "tfdist.cli", "launch", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    (average,) = re.findall(r"average (.*)$", done.stdout, re.MULTILINE)
    # two workers that read the same average at once move it by (1 - DECAY) ** 2 = 1e-4 more than one after the other
    assert float(average) == pytest.approx(1 - 0.99**200, abs=0.01)
