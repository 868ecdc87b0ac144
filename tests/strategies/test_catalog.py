"""Refusals of precision and devices; those of Keras are in tests/integration/test_keras_cells.py."""

import pytest

from tfdist.strategies.catalog import cross_device_refusal, devices_refusal, precision_refusal
from tfdist.strategies.options import CrossDevice, Keras, Precision, StrategyName


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


@pytest.mark.parametrize("devices", [3, 5, 7])
def test_hierarchical_copy_drops_a_gradient_of_an_odd_number_of_devices(devices):
    refusal = cross_device_refusal(CrossDevice.HIERARCHICAL_COPY, devices)
    assert refusal is not None
    assert f"one of {devices} devices" in refusal.reason
    assert f"--devices {devices - 1} or {devices + 1}" in refusal.instead
    assert cross_device_refusal(CrossDevice.REDUCTION_TO_ONE, devices) is None


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_hierarchical_copy_sums_one_or_an_even_number_of_devices(devices):
    assert cross_device_refusal(CrossDevice.HIERARCHICAL_COPY, devices) is None
