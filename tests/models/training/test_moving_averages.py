"""Moving averages of weights on one device, and their values in other shards."""

import numpy as np
import pytest

from tfdist.models.spec import Architecture, TrainingSpec

TINY = TrainingSpec(model=Architecture.TINY, image_size=32, classes=3)


@pytest.fixture(scope="module")
def moving_averages():
    from tfdist.models.training import moving_averages

    return moving_averages


@pytest.fixture
def model():
    from tfdist.models.architectures.build import build

    return build(TINY)


def arrays(variables):
    return [variable.numpy() for variable in variables]


def test_they_start_as_the_weights_and_follow_the_definition(moving_averages, model):
    import tensorflow as tf

    averages = moving_averages.create(0.75, model)
    assert moving_averages.create(None, model) is None
    expected = arrays(model.trainable_variables)
    for average, weight in zip(arrays(averages.averages), expected, strict=True):
        np.testing.assert_array_equal(average, weight)

    @tf.function
    def step():
        for weight in model.trainable_variables:
            weight.assign(0.5 * weight + 1.0)
        averages.update()

    for _ in range(5):
        step()
        weights = arrays(model.trainable_variables)
        expected = [0.75 * average + 0.25 * weight for average, weight in zip(expected, weights, strict=True)]
    for average, value in zip(arrays(averages.averages), expected, strict=True):
        np.testing.assert_allclose(average, value, atol=1e-6)


def test_evaluation_takes_averages_and_keeps_the_weights(moving_averages, model):
    averages = moving_averages.create(0.9, model)
    before = model.get_weights()
    for average in averages.averages:
        average.assign(average + 2.0)
    for value, weight in zip(averages.evaluated(model), before, strict=True):
        np.testing.assert_allclose(value, weight + 2.0, atol=1e-6)
    for value, weight in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, weight)


def test_statistics_of_batch_norm_are_evaluated_as_they_are(moving_averages):
    import tensorflow as tf

    layers = tf.keras.layers
    model = tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(2), layers.BatchNormalization()])
    averages = moving_averages.create(0.5, model)
    assert len(averages.averages) == 4
    model.set_weights([value + 1.0 for value in model.get_weights()])
    changed = [float(value.mean()) for value in model.get_weights()]
    evaluated = [float(value.mean()) for value in averages.evaluated(model)]
    is_statistic = ["moving" in weight.name for weight in model.weights]
    assert [now == pytest.approx(then) for now, then in zip(evaluated, changed, strict=True)] == is_statistic
    assert is_statistic.count(True) == 2


def test_a_checkpoint_has_them_or_not(moving_averages, model, tmp_path):
    import tensorflow as tf

    from tfdist.models.training.moving_averages import load_weights

    averages = moving_averages.create(0.9, model)
    with_averages, without = str(tmp_path / "with"), str(tmp_path / "without")
    for average in averages.averages:
        average.assign(average + 1.0)
    weights, expected = arrays(model.trainable_variables), arrays(averages.averages)
    tf.train.Checkpoint(model=model, averages=list(averages.averages)).write(with_averages)
    tf.train.Checkpoint(model=model).write(without)
    for prefix, values in ((with_averages, expected), (without, weights)):
        load_weights(model, prefix)
        for weight, value in zip(arrays(model.trainable_variables), values, strict=True):
            np.testing.assert_array_equal(weight, value)
    fresh = moving_averages.create(0.9, model)
    fresh.restore(with_averages)
    for average, value in zip(arrays(fresh.averages), expected, strict=True):
        np.testing.assert_array_equal(average, value)
    with pytest.raises(ValueError, match="0 numbers, not"):
        fresh.restore(without)


@pytest.mark.parametrize("shapes", [[(4, 3), (2,), ()], [(1, 3), (3, 3), (1,), (1,), ()]])
def test_values_are_cut_into_other_shards(moving_averages, shapes):
    whole = [np.arange(12.0).reshape(4, 3), np.array([20.0, 21.0]), np.array(30.0)]
    shards = [whole[0][:2], whole[0][2:], whole[1], whole[2]]
    parts = moving_averages.cut(shards, [np.zeros(shape) for shape in shapes])
    assert [part.shape for part in parts] == shapes
    assert [*np.concatenate([np.ravel(part) for part in parts])] == [*range(12), 20, 21, 30]
    with pytest.raises(ValueError, match="15 numbers, not 14"):
        moving_averages.cut(shards, whole[:2])
