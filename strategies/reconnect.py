"""Waits after parameter servers were restarted, until each worker reaches each of them."""

import os
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

RETRY_S = 0.2
TIMEOUT_S = 60.0


def wait_for_servers(workers: int, servers: int) -> None:
    """Let each worker read a variable of each server: for the chief, after a restart.

    A worker that has outlived a server tries to connect about once a second and fails all calls in between, also for a
    second after the server is back.

    Raises:
        tf.errors.UnavailableError: a worker reaches a server not in time.
    """
    if os.environ.get("TFDIST_ATTEMPT", "0") == "0":
        return
    deadline = time.monotonic() + TIMEOUT_S
    for server in range(servers):
        with tf.device(f"/job:ps/task:{server}"):
            read = tf.function(tf.Variable(0.0, trainable=False).read_value)
        for worker in range(workers):
            _retry(lambda read=read, worker=worker: _run_on(worker, read), deadline)  # type: ignore[misc]


def _run_on(worker: int, read: Callable[[], Any]) -> None:
    with tf.device(f"/job:worker/task:{worker}"):
        read().numpy()


def _retry(act: Callable[[], None], deadline: float) -> None:
    while True:
        try:
            return act()
        except tf.errors.UnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)
