"""The devices of this task: configured before the first TensorFlow operation, then named for a strategy.

The launcher sets cores, threads (TF_NUM_INTRAOP_THREADS, TF_NUM_INTEROP_THREADS) and CUDA_VISIBLE_DEVICES.
"""

import os
from typing import TYPE_CHECKING

from tfdist.launch.agent_program.description import describe
from tfdist.launch.doctor.problems import unseen_gpus
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import NO_GPUS
from tfdist.launch.machine import unusable_gpus
from tfdist.strategies.choice import StrategyChoice

if TYPE_CHECKING:
    import tensorflow as tf

LOGICAL_SHARE = 0.8
"""Share of a GPU's memory for its logical parts together; the rest is for each process's CUDA context and libraries."""


def names(choice: StrategyChoice) -> list[str]:
    """The devices of a task: `GPU:0`, `GPU:1` or, without GPUs, `CPU:0`, `CPU:1`."""
    return [f"{'GPU' if choice.gpus else 'CPU'}:{index}" for index in range(choice.devices)]


def of_replicas(strategy: "tf.distribute.Strategy") -> tuple[str, ...]:
    """The devices of this task's replicas; under the default strategy, which has none, the first GPU or the CPU."""
    import tensorflow as tf

    try:
        return tuple(strategy.extended.worker_devices)
    except RuntimeError:
        return ("GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0",)


def configure(choice: StrategyChoice) -> None:
    """Set how operations are placed and GPU memory is taken, or cut the GPU or the CPU into `choice.devices` devices.

    Call it before any TensorFlow operation. A task needs the GPUs of its CUDA_VISIBLE_DEVICES, which are none if it
    does not compute.

    Raises:
        TfdistError: TensorFlow sees fewer GPUs.
    """
    _configure_placement(choice)
    if not choice.gpus:
        _split_cpu(choice.devices)
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = _gpus(choice.devices if visible is None else len(set(visible.split(",")) - {NO_GPUS}))
    if choice.logical_gpus is not None and gpus:
        _cut_gpu(gpus[0], choice.logical_gpus, choice.devices)
    elif choice.memory_limit_mb is not None:
        _limit_memory(gpus, choice.memory_limit_mb)
    elif choice.memory_growth:
        _enable_memory_growth(gpus)


def _configure_placement(choice: StrategyChoice) -> None:
    import tensorflow as tf

    if not choice.soft_placement:
        tf.config.set_soft_device_placement(False)
    if choice.log_device_placement:
        tf.debugging.set_log_device_placement(True)


def _gpus(least: int) -> "list[tf.config.PhysicalDevice]":
    import tensorflow as tf

    gpus: list[tf.config.PhysicalDevice] = tf.config.list_physical_devices("GPU")
    if len(gpus) < least:
        raise TfdistError(f"TensorFlow sees {len(gpus)} GPUs, the task needs {least}: {_cause()}")
    return gpus


def _cause() -> str:
    description = describe()
    problem = unusable_gpus(LOCAL, description) or unseen_gpus(LOCAL, description)
    return problem.sentence if problem else "lower --devices, or check the driver"


def _enable_memory_growth(gpus: "list[tf.config.PhysicalDevice]") -> None:
    import tensorflow as tf

    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)


def _limit_memory(gpus: "list[tf.config.PhysicalDevice]", limit_mb: int) -> None:
    import tensorflow as tf

    for gpu in gpus:
        whole = tf.config.LogicalDeviceConfiguration(memory_limit=limit_mb)
        tf.config.set_logical_device_configuration(gpu, [whole])


def _cut_gpu(gpu: "tf.config.PhysicalDevice", parts: int, devices: int) -> None:
    """Make `devices` logical devices, each with its part of the memory; another process may make the other parts."""
    import tensorflow as tf

    memory = (describe()["gpu_memory"] or [0])[0]
    if not memory:
        raise TfdistError(f"--set logical_gpus={parts}: nvidia-smi does not report the GPU's memory; omit it")
    part = tf.config.LogicalDeviceConfiguration(memory_limit=int(memory * LOGICAL_SHARE / parts) >> 20)
    tf.config.set_logical_device_configuration(gpu, [part] * devices)


def _split_cpu(count: int) -> None:
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    if count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
