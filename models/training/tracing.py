"""A turn under tf.profiler, for TensorBoard."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def tracing(folder: str) -> Iterator[None]:
    """Profile this process into a folder of this task in `folder`; nothing if that is empty.

    A profiler that fails is a warning: the turns that were measured before must not be lost.
    """
    if not folder:
        yield
        return
    import tensorflow as tf

    own = Path(folder) / os.environ.get("TFDIST_TASK", "worker-0")
    started = False
    try:
        own.mkdir(parents=True, exist_ok=True)
        tf.profiler.experimental.start(str(own))
        started = True
    except Exception as error:
        _warn(error)
    yield
    if started:
        try:
            tf.profiler.experimental.stop()
        except Exception as error:
            _warn(error)


def _warn(error: Exception) -> None:
    sys.stderr.write(f"tfdist: no trace: {type(error).__name__}: {error}\n")
