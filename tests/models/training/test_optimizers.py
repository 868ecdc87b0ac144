"""The all-reduce with options: replaced only if an option is set. Its sums over replicas are in tests/integration."""

from dataclasses import replace

import pytest
import tensorflow as tf

from tfdist.models.spec import TrainingSpec
from tfdist.models.training.optimizers import aggregator
from tfdist.strategies.options import GradientDtype, Keras, StrategyName

SPEC = TrainingSpec(strategy=StrategyName.MULTI_WORKER, workers=2)


def test_without_options_the_optimizer_keeps_its_all_reduce():
    assert aggregator(SPEC) is None
    assert aggregator(replace(SPEC, bytes_per_pack=1, keras=Keras.THREE)) is None  # an option of the strategy


@pytest.mark.parametrize(
    ("dtype", "value", "exchanged"),
    [
        (GradientDtype.FLOAT32, 1 + 2**-20, 1 + 2**-20),
        (GradientDtype.BFLOAT16, 1 + 2**-10, 1.0),
        (GradientDtype.BFLOAT16, 1e-30, 1e-30),
        (GradientDtype.FLOAT16, 1 + 2**-10, 1 + 2**-10),
        (GradientDtype.FLOAT16, 1e-8, 0.0),
        (GradientDtype.FLOAT16, 7e4, float("inf")),
    ],
)
def test_gradients_are_exchanged_in_the_chosen_type_and_returned_in_theirs(dtype, value, exchanged):
    aggregate = aggregator(replace(SPEC, gradient_dtype=dtype, bytes_per_pack=1))
    assert aggregate is not None
    variable = tf.Variable([0.0])
    ((result, same),) = aggregate([(tf.constant([value]), variable)])
    assert same is variable
    assert result.dtype == tf.float32
    assert result.numpy()[0] == pytest.approx(exchanged, rel=2**-8 if value < 1e-20 else 1e-7)
