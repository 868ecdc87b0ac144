"""`current()`: the strategy that `tfdist launch` chose, for a custom program. Importing it costs almost nothing."""

import os
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


@cache
def current() -> "tf.distribute.Strategy":
    """The strategy of this program. The first call builds it: make that call before any TensorFlow operation.

    Under `tfdist launch` it is the launcher's choice. Without it, it is MultiWorkerMirroredStrategy if TF_CONFIG is
    set, else TensorFlow's default strategy. In a worker or ps of a parameter-server job the call serves the chief and
    never returns: the code below it runs in the chief only.

    Raises:
        TfdistError: TFDIST_STRATEGY_CHOICE or TF_CONFIG is malformed, or a device is missing.
    """
    from tfdist.launch import events
    from tfdist.launch.cluster import parse_tf_config
    from tfdist.launch.events import Phase
    from tfdist.launch.stack_dumps import dump_on_request
    from tfdist.strategies.build import build
    from tfdist.strategies.choice import StrategyChoice
    from tfdist.strategies.serve import serve, serves

    events.report_failures()
    dump_on_request()
    choice, tf_config = StrategyChoice.from_env(os.environ), os.environ.get("TF_CONFIG")
    if choice is None:
        import tensorflow as tf

        return tf.distribute.MultiWorkerMirroredStrategy() if tf_config else tf.distribute.get_strategy()
    if "tensorflow" not in sys.modules:
        events.emit("phase", phase=Phase.IMPORTING)
        import_module("tensorflow")
    if tf_config is not None:
        cluster, task = parse_tf_config(tf_config)
        if serves(choice, task):
            serve(choice, cluster, task)
    strategy = build(choice)
    events.emit("ready")
    return strategy
