"""Variables that start alike on all workers are not broadcast; layers read their own copies while a model is built."""

import numpy as np
import pytest
import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.spec import Architecture, TrainingSpec
from tfdist.models.training import step
from tfdist.models.training.context import TrainingContext
from tfdist.strategies.options import Keras, StrategyName


class Broadcasting:
    """A strategy that, as MultiWorkerMirroredStrategy does, puts a broadcast in the place of each initial value, and
    makes a copy for a second replica."""

    def __init__(self):
        self.broadcasts, self.copies = [], []

    def scope(self):
        def create_both(create, **options):
            def broadcast():
                self.broadcasts.append(options["initial_value"])
                return options["initial_value"]

            first = create(**{**options, "initial_value": broadcast})
            self.copies.append(create(**{**options, "initial_value": first.read_value}))
            return first

        return tf.variable_creator_scope(create_both)


def test_initial_values_of_slots_are_not_broadcast():
    strategy = Broadcasting()
    with step._scope_of_constants(strategy):
        one, two = tf.Variable(1.0), tf.Variable([2.0, 3.0])
    assert strategy.broadcasts == []
    np.testing.assert_array_equal(one, 1.0)
    np.testing.assert_array_equal(two, [2.0, 3.0])
    assert [copy.numpy().tolist() for copy in strategy.copies] == [1.0, [2.0, 3.0]]
    with strategy.scope():
        tf.Variable(4.0)
    assert strategy.broadcasts == [4.0]


@pytest.mark.parametrize(
    ("strategy", "keras", "own"),
    [
        (StrategyName.ONE_DEVICE, Keras.TWO, False),
        (StrategyName.MIRRORED, Keras.TWO, True),
        (StrategyName.MIRRORED, Keras.THREE, False),
        (StrategyName.CENTRAL_STORAGE, Keras.TWO, False),
    ],
)
def test_a_model_is_built_with_the_workers_own_copies(strategy, keras, own, monkeypatch):
    contexts = []

    def build(spec):
        contexts.append(tf.distribute.in_cross_replica_context())
        return tf.keras.Sequential()

    monkeypatch.setattr(step, "build_model", build)
    monkeypatch.setattr(step.optimizers, "build", lambda spec, model: None)
    spec = TrainingSpec(strategy=strategy, keras=keras, model=Architecture.TINY)
    created = step.create(TrainingContext(spec, tf.distribute.MirroredStrategy(["CPU:0"]), Task("worker", 0), 1))
    assert contexts == [not own]
    assert created[1:] == (None, None)
