"""The refusals that are no Keras cell; those are in tests/integration/test_keras_cells.py."""

import pytest

from tfdist.strategies.catalog import Keras, Precision, StrategyName, devices_refusal, precision_refusal


@pytest.mark.parametrize("strategy", [StrategyName.MULTI_WORKER, StrategyName.PARAMETER_SERVER])
def test_a_worker_without_gpus_has_one_device(strategy):
    said = devices_refusal(strategy, 3, gpus=False)
    assert said is not None
    assert "not 3" in said.reason
    assert "--workers 3" in said.instead
    assert devices_refusal(strategy, 3, gpus=True) is None
    assert devices_refusal(strategy, 1, gpus=False) is None


def test_one_process_makes_a_replica_on_each_virtual_device():
    assert devices_refusal(StrategyName.MIRRORED, 2, gpus=False) is None
    assert devices_refusal(StrategyName.CENTRAL_STORAGE, 2, gpus=False) is None


def test_float16_with_keras_3_is_for_one_replica():
    assert precision_refusal(StrategyName.MIRRORED, Keras.THREE, Precision.MIXED_FLOAT16, 2) is not None
    assert precision_refusal(StrategyName.MIRRORED, Keras.THREE, Precision.MIXED_FLOAT16, 1) is None
    assert precision_refusal(StrategyName.MIRRORED, Keras.THREE, "mixed_bfloat16", 2) is None
    assert precision_refusal(StrategyName.MIRRORED, Keras.TWO, Precision.MIXED_FLOAT16, 8) is None
    assert precision_refusal(StrategyName.PARAMETER_SERVER, Keras.TWO, Precision.MIXED_FLOAT16, 2) is not None
    assert precision_refusal(StrategyName.PARAMETER_SERVER, Keras.TWO, "mixed_bfloat16", 2) is None
