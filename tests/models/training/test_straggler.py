"""The planted straggler burns the time it says, inside a tf.function, and only in the slow replica."""

import time

import pytest
import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.context import TrainingContext
from tfdist.models.training.straggler import busy_wait, delay, is_slow, stamp, start_time
from tfdist.strategies.options import StrategyName


def context(strategy, name, workers=1, index=0, slow=1):
    spec = TrainingSpec(strategy=name, workers=workers, slow_worker=slow, slow_ms=1.0)
    return TrainingContext(spec, strategy, Task("worker", index), workers)


def test_a_slow_worker_is_found_by_its_task():
    default = tf.distribute.get_strategy()
    jobs = [context(default, StrategyName.INDEPENDENT, 2, index) for index in range(2)]
    assert [is_slow(job) for job in jobs] == [False, True]
    assert not is_slow(context(default, StrategyName.INDEPENDENT, 2, 1, slow=None))


def test_in_one_process_a_slow_replica_is_found_by_its_number():
    default = tf.distribute.get_strategy()
    assert [is_slow(context(default, StrategyName.ONE_DEVICE, slow=slow)) for slow in (0, 1)] == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("milliseconds", "factor", "share", "expected"),
    [(40.0, 1.0, 1.0, 0.06), (0.0, 3.0, 1.0, 0.06), (40.0, 3.0, 0.0, 0.02)],
)
def test_the_gradients_come_as_much_later_as_planted(milliseconds, factor, share, expected):
    """Their own computation, here a loop of 20 ms, takes the factor longer."""
    spec = TrainingSpec(slow_worker=0, slow_ms=milliseconds, slow_factor=factor)

    @tf.function
    def step(images: tf.Tensor, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        start, images = start_time(spec, images, images)
        with tf.control_dependencies([busy_wait(tf.constant(0.02, tf.float64), stamp([images], gpus=False))]):
            gradient = tf.identity(2 * images)
        (late,) = delay(spec, start, [gradient], share)
        return late, stamp([late], gpus=False)

    images, number = tf.constant([1.0, 2.0]), tf.constant(share, tf.float64)
    assert step(images, number)[0].numpy().tolist() == [2.0, 4.0]
    seconds = []
    for _ in range(15):
        before = time.time()
        seconds.append(float(step(images, number)[1]) - before)
    assert expected - 0.001 <= min(seconds) < expected + 0.02  # a busy machine makes some of them later, none earlier
