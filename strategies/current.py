"""`current()`: the strategy that `tfdist launch` chose, for a user's own program.

TensorFlow is imported on the first call. So are our own modules, for `models.spec` imports this package's catalog.
"""

import json
import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from tfdist.models.spec import TrainingSpec


@cache
def current() -> "tf.distribute.Strategy":
    """The strategy of this program, built on the first call: make that call before any TensorFlow operation.

    Started by `tfdist launch` it is the launcher's choice. Otherwise it is MultiWorkerMirroredStrategy if TF_CONFIG is
    set, and TensorFlow's default strategy if not. In a worker or ps of a parameter-server job it serves the chief and
    never returns: there the program above this call is all that runs.

    Raises:
        TfdistError: TFDIST_SPEC or TF_CONFIG is not what it should be, or a device is missing.
    """
    from tfdist.models.spec import SPEC_VARIABLE, TrainingSpec

    text = os.environ.get(SPEC_VARIABLE)
    return _unlaunched() if text is None else _launched(TrainingSpec.from_json(json.loads(text)))


def _unlaunched() -> "tf.distribute.Strategy":
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy() if os.environ.get("TF_CONFIG") else tf.distribute.get_strategy()


def _launched(spec: "TrainingSpec") -> "tf.distribute.Strategy":
    from tfdist.launch.cluster import parse_tf_config
    from tfdist.models import events
    from tfdist.strategies.build import build
    from tfdist.strategies.serve import serve, serves

    config = os.environ.get("TF_CONFIG")
    if config is not None:
        cluster, task = parse_tf_config(config)
        if serves(spec, task):
            serve(spec, cluster, task, lambda: events.emit("ready"))
    strategy = build(spec)
    events.emit("ready")
    return strategy
