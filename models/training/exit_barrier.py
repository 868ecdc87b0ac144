"""The last barrier of a training: a task that exits would break an exchange in which another one still is."""

import os
import threading
from contextlib import suppress

import tensorflow as tf

from tfdist.launch import events
from tfdist.models.spec import INHERITED
from tfdist.models.training.agreement import Sum, make_sum
from tfdist.models.training.context import TrainingContext

LIMIT_S = 10.0
"""Seconds for workers of other launchers to arrive."""


def wait_before_exit(job: TrainingContext) -> None:
    """Return when all tasks that step together have called this function.

    Their launcher holds them. Workers with launchers of their own take a sum instead, which needs a value of each, and
    wait for at most `LIMIT_S` seconds.
    """
    events.wait_at_barrier()
    if INHERITED in os.environ and job.workers > 1:
        wait_for_sum(make_sum(job), LIMIT_S)


def wait_for_sum(summed: Sum, limit_s: float) -> None:
    """Take a sum over all workers, for at most `limit_s` seconds; an error ends it, too: another worker has exited."""

    def take() -> None:
        with suppress(tf.errors.OpError):
            summed([0.0])

    thread = threading.Thread(target=take, name="exit barrier", daemon=True)
    thread.start()
    thread.join(limit_s)
