"""Refusals of precision and devices; those of Keras are in tests/integration/test_keras_cells.py."""

import pytest

from tfdist.strategies.options import Keras, Precision, StrategyName
from tfdist.strategies.refusals import devices_refusal, precision_refusal


@pytest.mark.parametrize("strategy", [StrategyName.MULTI_WORKER, StrategyName.PARAMETER_SERVER])
def test_a_worker_without_gpus_has_one_device(strategy):
    refusal = devices_refusal(strategy, 2, 3, gpus=False)
    assert refusal is not None
    assert "not 3" in refusal.reason
    assert refusal.instead == "omit --devices and use --workers 6"
    assert devices_refusal(strategy, 2, 3, gpus=True) is None
    assert devices_refusal(strategy, 2, 1, gpus=False) is None


def test_one_process_makes_a_replica_on_each_virtual_device():
    assert devices_refusal(StrategyName.MIRRORED, 1, 2, gpus=False) is None
    assert devices_refusal(StrategyName.CENTRAL_STORAGE, 1, 2, gpus=False) is None


def test_float16_needs_loss_scaling_on_every_replica():
    assert precision_refusal(StrategyName.MIRRORED, Keras.THREE, Precision.MIXED_FLOAT16, 2) is not None
    assert precision_refusal(StrategyName.MIRRORED, Keras.THREE, Precision.MIXED_FLOAT16, 1) is None
    assert precision_refusal(StrategyName.MIRRORED, Keras.THREE, Precision.MIXED_BFLOAT16, 2) is None
    assert precision_refusal(StrategyName.MIRRORED, Keras.TWO, Precision.MIXED_FLOAT16, 8) is None
    assert precision_refusal(StrategyName.PARAMETER_SERVER, Keras.TWO, Precision.MIXED_FLOAT16, 2) is not None
    assert precision_refusal(StrategyName.PARAMETER_SERVER, Keras.TWO, Precision.MIXED_BFLOAT16, 2) is None
