"""The devices of this task: configured before the first TensorFlow operation, then named for a strategy.

The launcher sets cores, threads (TF_NUM_INTRAOP_THREADS, TF_NUM_INTEROP_THREADS) and CUDA_VISIBLE_DEVICES.
"""

import os

from tfdist.launch.errors import TfdistError
from tfdist.launch.job import NO_GPUS
from tfdist.strategies.choice import StrategyChoice


def names(choice: StrategyChoice) -> list[str]:
    """The devices of a task: `GPU:0`, `GPU:1` or, without GPUs, `CPU:0`, `CPU:1`."""
    return [f"{'GPU' if choice.gpus else 'CPU'}:{index}" for index in range(choice.devices)]


def configure(choice: StrategyChoice) -> None:
    """Enable memory growth of GPUs, or split the CPU into `choice.devices` logical devices.

    Call it before any TensorFlow operation. A task needs the GPUs of its CUDA_VISIBLE_DEVICES, which are none if it
    does not compute.

    Raises:
        TfdistError: TensorFlow sees fewer GPUs.
    """
    if choice.gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        _enable_memory_growth(choice.devices if visible is None else len(set(visible.split(",")) - {NO_GPUS}))
    else:
        _split_cpu(choice.devices)


def _enable_memory_growth(least: int) -> None:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < least:
        raise TfdistError(
            f"TensorFlow sees {len(gpus)} GPUs, the task needs {least}: lower --devices, or check the driver"
        )
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)


def _split_cpu(count: int) -> None:
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    if count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
