"""A user's own program: all-reduces in steps. Arguments: SECONDS that worker-1 takes to end after an exception, [plain].

With `plain` it does not call `tfdist.strategies.current()`, so that tfdist learns nothing from it but its steps.
"""

import atexit
import os
import sys
import time

import tensorflow as tf

from tfdist.launch import events
from tfdist.strategies import current

SECONDS, *OPTIONS = sys.argv[1:]
strategy = tf.distribute.MultiWorkerMirroredStrategy() if OPTIONS else current()
if os.environ["TFDIST_TASK"] == "worker-1":
    atexit.register(time.sleep, float(SECONDS))  # its peer waits until its server has ended


@tf.function
def step() -> tf.Tensor:
    """One all-reduce."""
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([1000])))


for number in range(1, 1_000_000):
    step()
    events.emit("step", step=number, steps=1_000_000)
