"""`current()`: the strategy that `tfdist launch` chose, for a custom program."""

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from tfdist.strategies.choice import StrategyChoice


@cache
def current() -> "tf.distribute.Strategy":
    """The strategy of this program. The first call builds it: make that call before any TensorFlow operation.

    Under `tfdist launch` it is the launcher's choice. Without it, it is MultiWorkerMirroredStrategy if TF_CONFIG is
    set, else TensorFlow's default strategy. In a worker or ps of a parameter-server job the call serves the chief and
    never returns: the code below it runs in the chief only.

    Raises:
        TfdistError: TFDIST_STRATEGY_CHOICE or TF_CONFIG is malformed, or a device is missing.
    """
    from tfdist.strategies.choice import StrategyChoice

    choice = StrategyChoice.from_env(os.environ)
    return _without_launcher() if choice is None else _from_launcher(choice)


def _without_launcher() -> "tf.distribute.Strategy":
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy() if os.environ.get("TF_CONFIG") else tf.distribute.get_strategy()


def _from_launcher(choice: "StrategyChoice") -> "tf.distribute.Strategy":
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
