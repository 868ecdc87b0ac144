"""Waiting for this task's devices."""

from collections.abc import Iterable

import tensorflow as tf

from tfdist.strategies import devices


def wait_for_devices(strategy: tf.distribute.Strategy) -> None:
    """Return when this task's devices have finished all their work; a GPU runs kernels asynchronously.

    tf.test.experimental.sync_devices would also wait for the devices of other workers, which fails in a cluster.
    """
    wait_for_names(devices.of_replicas(strategy))


def wait_for_names(names: Iterable[str]) -> None:
    """Return when the devices with these names have finished all their work."""
    for device in names:
        with tf.device(device):
            tf.raw_ops.SyncDevice()
