"""Waiting until a device has really finished: without it a GPU's clock is read while its kernels still run."""

import tensorflow as tf


def finish(strategy: tf.distribute.Strategy) -> None:
    """Return once this task's devices have done all that was asked of them.

    It is tf.test.experimental.sync_devices for our own devices alone: that one also asks those of other workers, which
    fails in a cluster of equals.
    """
    for device in strategy.extended.worker_devices:
        with tf.device(device):
            tf.raw_ops.SyncDevice()
