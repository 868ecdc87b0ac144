"""MobileNetV2 of Keras 3 on JAX, on several processes: batches and optimizer of `tfdist launch --preset cpu`.

tfdist launch --strategy external --workers 2 -- python examples/peers/keras_jax.py
tfdist bench --suite examples/peers/jax.toml

gloo on CPUs; one GPU was tried; NCCL, with a GPU for each process, was not run on hardware.
"""

import argparse
import json
import math
import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other arms of a bench need GPU memory, too

import jax
import keras
import numpy as np

import tfdist.measure

PARAMETERS = 3_504_872
"""Trainable ones, of 1000 classes."""


def connect():
    """Rank and number of processes, connected at the address that TF_CONFIG has for the first worker."""
    config = json.loads(os.environ.get("TF_CONFIG", '{"cluster": {"worker": ["127.0.0.1:0"]}, "task": {"index": 0}}'))
    workers, rank = config["cluster"]["worker"], config["task"]["index"]
    if len(workers) > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(workers[0], len(workers), rank)
    return rank, len(workers)


def main():
    """Train until the launcher has measured enough, or `--steps`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16, help="of each process")
    parser.add_argument("--side", type=int, default=96, help="of the square images, pixels")
    options = parser.parse_args()
    rank, ranks = connect()
    keras.utils.set_random_seed(0)
    if ranks > 1:
        keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    model = keras.applications.MobileNetV2(
        (options.side, options.side, 3), weights=None, classes=1000, classifier_activation=None
    )
    parameters = sum(int(np.prod(each.shape)) for each in model.trainable_variables)
    if parameters != PARAMETERS:
        raise SystemExit(f"the model has {parameters:,} parameters, not {PARAMETERS:,}")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss)
    random = np.random.default_rng(1 + rank)
    images = random.random((options.batch, options.side, options.side, 3), np.float32)
    labels = random.integers(0, 1000, options.batch).astype(np.int32)
    losses = []
    for _ in tfdist.measure.steps(range(options.steps), examples=ranks * options.batch):
        losses = [*losses[:1], float(model.train_on_batch(images, labels))]  # waits for the device
    if not math.isfinite(losses[-1]) or losses[-1] >= losses[0]:
        raise SystemExit(f"the loss went from {losses[0]:.4f} to {losses[-1]:.4f}: it does not train")


if __name__ == "__main__":
    main()
