"""Every option of a strategy is passed to TensorFlow."""

import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.models.spec import TrainingSpec
from tfdist.strategies import devices
from tfdist.strategies.options import Communication, CrossDevice

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"cuda_missing": ["libcudnn.so.9"]}, r"CUDA libraries are missing \(libcudnn.so.9\).*pip install"),
        ({"driver": "470.1"}, "driver 470.1 is older than 525.60.13"),
        ({"gpus": [], "gpus_hidden": 2}, "CUDA_VISIBLE_DEVICES hides 2 GPUs"),
        ({"gpus": []}, "/dev has 2 GPUs, but nvidia-smi lists none"),
        ({}, "lower --devices"),
    ],
)
def test_a_task_names_the_cause_of_a_gpu_that_tensorflow_does_not_see(description, words, monkeypatch):
    import tensorflow as tf

    gpu = {"gpus": ["A100"], "gpus_hidden": 0, "gpu_devices": 2, "driver": "570.1", "cuda_missing": []}
    host = {"executable": "python", "packages": {"tensorflow": "2.21.0"}}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    monkeypatch.setattr(devices, "describe", lambda: {**gpu, **host, **description})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(TfdistError, match=f"sees 0 GPUs, the task needs 1: .*{words}"):
        devices.configure(TrainingSpec(gpus=True))


@pytest.mark.parametrize(("parts", "of_task", "limit"), [(4, 4, 8192), (4, 1, 8192), (2, 1, 16384)])
def test_a_gpu_is_cut_into_logical_devices_that_leave_memory_for_cuda(parts, of_task, limit, monkeypatch):
    import tensorflow as tf

    cut = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", lambda gpu, logical: cut.append((gpu, logical)))
    monkeypatch.setattr(devices, "describe", lambda: {"gpu_memory": [40960 << 20]})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    devices.configure(TrainingSpec(devices=of_task, gpus=True, logical_gpus=parts))
    assert cut == [("GPU:0", [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * of_task)]


@pytest.mark.parametrize(
    ("values", "grown", "limits"),
    [
        ({}, ["GPU:0", "GPU:1"], []),
        ({"memory_growth": False}, [], []),
        ({"memory_limit_mb": 4096}, [], [("GPU:0", [4096]), ("GPU:1", [4096])]),
    ],
)
def test_the_memory_of_gpus_grows_or_is_limited(values, grown, limits, monkeypatch):
    import tensorflow as tf

    growing, limited = [], []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0", "GPU:1"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, grows: growing.append(gpu))
    monkeypatch.setattr(
        tf.config,
        "set_logical_device_configuration",
        lambda gpu, parts: limited.append((gpu, [part.memory_limit for part in parts])),
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    devices.configure(TrainingSpec(devices=2, gpus=True, **values))
    assert (growing, limited) == (grown, limits)


@pytest.mark.parametrize("soft", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_with_soft_placement_an_operation_runs_where_its_device_is_missing(soft):
    program = (
        "import tensorflow as tf; from tfdist.strategies import devices; from tfdist.models.spec import TrainingSpec\n"
        f"devices.configure(TrainingSpec(soft_placement={soft}))\n"
        "with tf.device('GPU:0'): print(tf.constant(1.0) + 1.0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode == 0) is soft
    assert ("2.0" in done.stdout) is soft
    assert ("InvalidArgumentError" in done.stderr) is not soft


def test_a_gpu_of_unknown_memory_is_not_cut(monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    monkeypatch.setattr(devices, "describe", lambda: {"gpu_memory": []})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(TfdistError, match="--set logical_gpus=2: nvidia-smi does not report"):
        devices.configure(TrainingSpec(devices=2, gpus=True, logical_gpus=2))


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
