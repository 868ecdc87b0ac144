"""The model of a checkpoint as a SavedModel or a .keras file.

PREFIX is the checkpoint's path without the ending; the training's spec is in TFDIST_SPEC. The model computes in
float32, whatever the precision of the training. A .keras file is one of Keras 3, also if tf_keras trained it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.models.checkpoints import UNREADABLE
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.task import run
from tfdist.strategies.options import Keras, Precision

if TYPE_CHECKING:
    import tensorflow as tf

KERAS_FILE = ".keras"
"""The ending of a target that becomes one file."""


def export(prefix: str, target: str) -> None:
    """Write the model, whole or not at all. TensorFlow must not have been imported with another Keras.

    Raises:
        TfdistError: the target exists or cannot be written, or the checkpoint cannot be read.
    """
    spec = TrainingSpec.of_task("export with `tfdist export`")
    os.environ.update((Keras.THREE if target.endswith(KERAS_FILE) else spec.keras).environment)
    import tensorflow as tf

    from tfdist.models.training.moving_averages import build_plain, load_converted, load_weights

    tf.config.set_visible_devices([], "GPU")
    tf.get_logger().setLevel("ERROR")
    tf.keras.utils.disable_interactive_logging()  # it would list every variable
    if tf.io.gfile.exists(target):
        raise TfdistError(f"{target} exists: use another name, or remove it")
    model = build_plain(spec, Precision.FLOAT32)
    try:
        converts = spec.keras is Keras.TWO and target.endswith(KERAS_FILE)
        load_converted(model, prefix) if converts else load_weights(model, prefix)
    except tf.errors.OpError as error:
        raise TfdistError(f"checkpoint {prefix} cannot be read: {error.message}", UNREADABLE) from None
    try:
        with _moved_into_place(target) as temporary:
            model.save(temporary) if target.endswith(KERAS_FILE) else _save_folder(model, temporary)
    except (OSError, tf.errors.OpError) as error:
        raise TfdistError(f"{target} cannot be written: {error}", ExitCode.FAILED) from None


@contextmanager
def _moved_into_place(target: str) -> Iterator[str]:
    """A temporary name beside `target`, which is renamed at the end, or removed after an exception."""
    import tensorflow as tf

    from tfdist.models.training.store import remove

    folder, slash, name = target.rstrip("/").rpartition("/")
    temporary = f"{folder}{slash}.{uuid4().hex[:8]}-{name}"
    tf.io.gfile.makedirs(f"{folder}{slash}" or ".")
    try:
        yield temporary
        tf.io.gfile.rename(temporary, target)
    finally:
        remove(temporary)


def _save_folder(model: "tf.keras.Model", path: str) -> None:
    """A SavedModel whose signature `serving_default` maps images to logits and probabilities."""
    import tensorflow as tf

    def serve(images: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = model(images, training=False)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    images = tf.TensorSpec(model.input_shape, tf.float32, name="images")
    archive = tf.keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serving_default", serve, input_signature=[images])
    archive.write_out(path)


def main() -> int:
    """Export what the arguments name, PREFIX and TARGET; returns as `run`."""
    return run(lambda: export(*sys.argv[1:]))
