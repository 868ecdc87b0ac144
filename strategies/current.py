"""`current()`: the strategy that `tfdist launch` chose, for a user's own program."""

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from tfdist.strategies.choice import StrategyChoice


@cache
def current() -> "tf.distribute.Strategy":
    """The strategy of this program, built on the first call: make that call before any TensorFlow operation.

    Started by `tfdist launch` it is the launcher's choice. Otherwise it is MultiWorkerMirroredStrategy if TF_CONFIG is
    set, and TensorFlow's default strategy if not. In a worker or ps of a parameter-server job it serves the chief and
    never returns: there only the code above this call runs.

    Raises:
        TfdistError: TFDIST_STRATEGY_CHOICE or TF_CONFIG is malformed, or a device is missing.
    """
    from tfdist.strategies.choice import StrategyChoice

    choice = StrategyChoice.from_env(os.environ)
    return _unlaunched() if choice is None else _launched(choice)


def _unlaunched() -> "tf.distribute.Strategy":
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy() if os.environ.get("TF_CONFIG") else tf.distribute.get_strategy()


def _launched(choice: "StrategyChoice") -> "tf.distribute.Strategy":
    from tfdist.launch import events
    from tfdist.launch.cluster import parse_tf_config
    from tfdist.strategies.build import build
    from tfdist.strategies.serve import serve, serves

    config = os.environ.get("TF_CONFIG")
    if config is not None:
        cluster, task = parse_tf_config(config)
        if serves(choice, task):
            serve(choice, cluster, task, lambda: events.emit("ready"))
    strategy = build(choice)
    events.emit("ready")
    return strategy
