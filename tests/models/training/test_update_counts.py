"""Counting updates, with the workers' functions called in a known order."""

import numpy as np
import pytest

from tfdist.models.training.update_counts import of_workers, to_json


def test_zeros_at_the_end_are_left_out():
    assert to_json(np.array([[0, 2, 0], [0, 0, 0]])) == [[0, 2], []]


def test_a_worker_has_its_number_of_updates_and_their_mean_staleness():
    assert of_workers(np.array([[1, 0, 3], [0, 0, 0]])) == {"updates": [4, 0], "staleness": [1.5, 0.0]}


@pytest.fixture
def counts():
    import tensorflow as tf

    from tfdist.models.training.update_counts import MOST, UpdateCounts

    return UpdateCounts(tf.Variable(0, dtype=tf.int64), tf.Variable(tf.zeros([2, MOST + 1], tf.int64)))


def test_updates_by_others_between_read_and_write_are_counted(counts):
    import tensorflow as tf

    @tf.function
    def step(worker, others):
        def update(source, worker):
            counts.applied.assign_add(others)
            return tf.identity(source)

        return counts.around(update)(tf.constant(3.0), worker)

    for worker, others in ((0, 0), (0, 2), (1, 1), (0, 2)):
        loss = step(tf.constant(worker, tf.int64), tf.constant(others, tf.int64))
        assert float(loss) == 3.0
    assert to_json(counts.read()) == [[1, 0, 2], [0, 1]]
    assert int(counts.applied) == 4 + 5
