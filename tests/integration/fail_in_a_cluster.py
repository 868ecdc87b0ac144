"""A worker that all-reduces until it fails in the way that its arguments say: TASK FAULT [current]."""

import atexit
import os
import signal
import sys
import time

TASK, FAULT, *OPTIONS = sys.argv[1:]
FAILS = os.environ["TFDIST_TASK"] == TASK
if FAILS and FAULT == "leave":
    sys.exit(0)

import tensorflow as tf  # noqa: E402 - after the exit

if OPTIONS:
    from tfdist.strategies import current

    strategy = current()
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def step() -> tf.Tensor:
    """One all-reduce."""
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([1000])))


for number in range(1000):
    step()
    time.sleep(0.05)
    if FAILS and number == 20:
        if FAULT == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        if FAULT == "slow":
            atexit.register(time.sleep, 60 if OPTIONS else 8)  # its peer waits for it until its server has ended
        raise ValueError("bad data")
