"""The devices of this task: configured before TensorFlow's first operation, then named for a strategy.

Cores and threads are none of its business: the launcher sets the affinity, TF_NUM_INTRAOP_THREADS and
TF_NUM_INTEROP_THREADS (and CUDA_VISIBLE_DEVICES) before the task starts.
"""

import os

from tfdist.launch.errors import TfdistError
from tfdist.launch.job import NO_GPUS
from tfdist.strategies.choice import StrategyChoice


def names(choice: StrategyChoice) -> list[str]:
    """The devices that a strategy of one process spreads over: `GPU:0`, `GPU:1` or, without GPUs, `CPU:0`, `CPU:1`."""
    return [f"{'GPU' if choice.gpus else 'CPU'}:{index}" for index in range(choice.devices)]


def configure(choice: StrategyChoice) -> None:
    """Let GPU memory grow, or cut the CPU into `choice.devices` logical devices. Call it before any TensorFlow op.

    A task that does not compute (a parameter server, a chief beside them) has its GPUs hidden and needs none.

    Raises:
        TfdistError: fewer GPUs than `choice.devices`.
    """
    if choice.gpus:
        _let_gpu_memory_grow(0 if os.environ.get("CUDA_VISIBLE_DEVICES") == NO_GPUS else choice.devices)
    else:
        _cut_cpu(choice.devices)


def _let_gpu_memory_grow(wanted: int) -> None:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < wanted:
        raise TfdistError(
            f"TensorFlow sees {len(gpus)} GPUs, the task needs {wanted}: lower --devices, or check the driver"
        )
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)


def _cut_cpu(count: int) -> None:
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    if count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
