"""A checkpoint as a SavedModel and as a .keras file, with both versions of Keras."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tfdist.launch.agent_program.template import module_command
from tfdist.models.checkpoints import UNREADABLE
from tfdist.models.spec import Architecture, TrainingSpec
from tfdist.strategies.options import Keras, Precision

TINY = TrainingSpec(model=Architecture.TINY, image_size=32, classes=3)

SAVE = """
import os
import sys
import tensorflow as tf
from tfdist.models.architectures.build import build
from tfdist.models.spec import TrainingSpec

model = build(TrainingSpec.from_env(os.environ))
tf.train.Checkpoint(model=model, optimizer=tf.Variable(1.0)).write(sys.argv[1])
images = tf.random.stateless_uniform((4, 32, 32, 3), (1, 2))
sys.stdout.write(str(model(images).numpy().tolist()))
"""
LOAD = """
import sys
import keras
import tensorflow as tf

images = tf.random.stateless_uniform((4, 32, 32, 3), (1, 2))
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](images=images)
tf.debugging.assert_near(tf.nn.softmax(served["logits"]), served["probabilities"])
loaded = keras.saving.load_model(sys.argv[2])(images)  # Keras 3, whatever Keras saved the checkpoint
sys.stdout.write(str([served["logits"].numpy().tolist(), loaded.numpy().tolist()]))
"""
EXPORT = module_command("tfdist.models.training.export")


def python(spec, *arguments):
    """Run Python with the spec and its Keras."""
    env = {**os.environ, **spec.to_env(), **spec.keras.environment}
    return subprocess.run([sys.executable, *map(str, arguments)], env=env, capture_output=True, text=True)


def printed(spec, *arguments):
    result = python(spec, *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout or "null")


@pytest.mark.thorough
@pytest.mark.parametrize(("keras", "model"), [(Keras.TWO, "tiny"), (Keras.TWO, "mobilenet_v2"), (Keras.THREE, "tiny")])
def test_both_forms_compute_what_the_checkpoints_model_does(keras, model, tmp_path):
    spec, prefix = replace(TINY, keras=keras, precision=Precision.MIXED_BFLOAT16), tmp_path / "step-00000010"
    spec = replace(spec, model=Architecture(model), alpha=0.35)
    expected = printed(spec, "-c", SAVE, prefix)
    folder, file = tmp_path / "new" / "model", tmp_path / "model.keras"
    assert printed(spec, *EXPORT, prefix, folder) is None
    assert printed(spec, *EXPORT, prefix, file) is None
    for values in printed(spec, "-c", LOAD, folder, file):
        np.testing.assert_allclose(values, expected, atol=1e-5)
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.thorough
def test_an_existing_target_and_a_damaged_checkpoint_are_refused(tmp_path):
    prefix, target = tmp_path / "step-00000010", tmp_path / "model"
    printed(TINY, "-c", SAVE, prefix)
    taken = python(TINY, *EXPORT, prefix, tmp_path)
    assert (taken.returncode, taken.stderr.splitlines()[-1]) == (
        2,
        f"tfdist: {tmp_path} exists: use another name, or remove it",
    )
    data = tmp_path / "step-00000010.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    damaged = python(TINY, *EXPORT, prefix, target)
    assert damaged.returncode == UNREADABLE
    assert f"tfdist: checkpoint {prefix} cannot be read: " in damaged.stderr
    assert not target.exists()
