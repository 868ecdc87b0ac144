"""Every option of a strategy is passed to TensorFlow."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.models.spec import TrainingSpec
from tfdist.strategies import devices
from tfdist.strategies.options import Communication, CrossDevice


def test_devices_are_named_by_kind_and_index():
    assert devices.names(TrainingSpec(devices=2)) == ["CPU:0", "CPU:1"]
    assert devices.names(TrainingSpec(devices=2, gpus=True)) == ["GPU:0", "GPU:1"]


@pytest.mark.parametrize(
    ("visible", "count", "enough"),
    [("0,1", 2, True), ("0,1", 1, False), ("0", 1, True), ("-1", 0, True), (None, 2, True), (None, 0, False)],
)
def test_a_task_needs_the_gpus_that_the_launcher_gave_it(visible, count, enough, monkeypatch):
    import tensorflow as tf

    grown = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"{kind}:{n}" for n in range(count)])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, grows: grown.append((gpu, grows)))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with nullcontext() if enough else pytest.raises(TfdistError, match=f"sees {count} GPUs, the task needs 2"):
        devices.configure(TrainingSpec(devices=2, gpus=True))
        assert grown == [(f"GPU:{n}", True) for n in range(count)]


def test_communication_options():
    from tfdist.strategies.multi_worker import communication_options

    options = communication_options(
        TrainingSpec(communication=Communication.RING, bytes_per_pack=1234, timeout_collective_s=5.5)
    )
    assert (options.implementation.name, options.bytes_per_pack, options.timeout_seconds) == ("RING", 1234, 5.5)
    default = communication_options(TrainingSpec())
    assert (default.implementation.name, default.bytes_per_pack, default.timeout_seconds) == ("AUTO", 0, None)


@pytest.mark.parametrize("choice", [CrossDevice.NCCL, CrossDevice.HIERARCHICAL_COPY])
@pytest.mark.parametrize(("packs", "num_packs"), [(None, 1), (3, 3)])
def test_packs_are_passed_to_the_all_reduce(choice, packs, num_packs):
    from tfdist.strategies.mirrored import cross_device_ops

    assert cross_device_ops(replace(TrainingSpec(), cross_device=choice, packs=packs))._num_packs == num_packs


def test_cross_device_choices():
    import tensorflow as tf

    from tfdist.strategies.mirrored import cross_device_ops

    assert cross_device_ops(TrainingSpec()) is None
    to_one = cross_device_ops(TrainingSpec(cross_device=CrossDevice.REDUCTION_TO_ONE))
    assert isinstance(to_one, tf.distribute.ReductionToOneDevice)
