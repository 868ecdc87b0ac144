"""Waiting for this task's devices."""

import tensorflow as tf


def wait_for_devices(strategy: tf.distribute.Strategy) -> None:
    """Return when this task's devices have finished all their work; a GPU runs kernels asynchronously.

    tf.test.experimental.sync_devices would also wait for the devices of other workers, which fails in a cluster.
    """
    for device in strategy.extended.worker_devices:
        with tf.device(device):
            tf.raw_ops.SyncDevice()
