"""tf.distribute.TPUStrategy, as https://www.tensorflow.org/guide/tpu says. Not run on hardware."""

import os
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from tfdist.launch.errors import TfdistError
from tfdist.strategies.catalog import TPU_DEVICES
from tfdist.strategies.choice import StrategyChoice


def address(environment: Mapping[str, str], dev: Path) -> str:
    """What TPUClusterResolver takes: the name in TPU_NAME, or `local` on a TPU VM.

    Looking first matters: without a TPU, TensorFlow asks a cloud's metadata server for minutes.

    Raises:
        TfdistError: there is no TPU.
    """
    if environment.get("TPU_NAME"):
        return environment["TPU_NAME"]
    if any((dev / device).exists() for device in TPU_DEVICES):
        return "local"
    missing = ", ".join(f"no /dev/{device}" for device in TPU_DEVICES)
    raise TfdistError(f"--strategy tpu: no TPU here ({missing}, no TPU_NAME): run on a TPU VM, or set TPU_NAME")


def build(choice: StrategyChoice) -> tf.distribute.Strategy:
    """The strategy over all cores of the TPU.

    Raises:
        TfdistError: there is no TPU, or it does not answer.
    """
    name = address(os.environ, Path("/dev"))
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        sentence = " ".join(str(error).split())
        raise TfdistError(f"--strategy tpu: the TPU {name!r} does not answer ({sentence}): check TPU_NAME") from None
    return tf.distribute.TPUStrategy(resolver)
