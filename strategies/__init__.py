"""The strategies and how to build them. A custom program calls `current()`; importing it costs almost nothing."""

from functools import cache
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
    from tfdist.strategies.build import build_current

    return build_current()
