"""tf.distribute.TPUStrategy, set up as in https://www.tensorflow.org/guide/tpu. Not run on hardware."""

import os
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from tfdist.launch.errors import TfdistError
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName


def address(environment: Mapping[str, str], dev: Path) -> str:
    """The argument of TPUClusterResolver: the name in TPU_NAME, or `local` on a TPU VM.

    Without this check TensorFlow queries a cloud's metadata server for minutes where there is no TPU.

    Raises:
        TfdistError: no TPU.
    """
    if environment.get("TPU_NAME"):
        return environment["TPU_NAME"]
    files = CATALOG[StrategyName.TPU].device_files
    if any((dev / file).exists() for file in files):
        return "local"
    missing = ", ".join(f"no /dev/{file}" for file in files)
    raise TfdistError(f"--strategy tpu: no TPU here ({missing}, no TPU_NAME): run on a TPU VM, or set TPU_NAME")


def build(choice: StrategyChoice) -> tf.distribute.Strategy:
    """The strategy over all cores of the TPU.

    Raises:
        TfdistError: no TPU, or it does not respond.
    """
    name = address(os.environ, Path("/dev"))
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())
        raise TfdistError(f"--strategy tpu: the TPU {name!r} does not respond ({reason}): check TPU_NAME") from None
    return tf.distribute.TPUStrategy(resolver)
