"""The devices of this task: configured before the first TensorFlow operation, named for a strategy, and waited for.

The launcher sets cores, threads (TF_NUM_INTRAOP_THREADS, TF_NUM_INTEROP_THREADS) and CUDA_VISIBLE_DEVICES.
"""

import os
from collections.abc import Iterable
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


def wait_for_devices(strategy: "tf.distribute.Strategy") -> None:
    """Return when this task's devices have finished all their work; a GPU runs kernels asynchronously.

    tf.test.experimental.sync_devices would also wait for the devices of other workers, which fails in a cluster.
    """
    wait_for_names(of_replicas(strategy))


def wait_for_names(names: Iterable[str]) -> None:
    """Return when the devices with these names have finished all their work."""
    import tensorflow as tf

    for device in names:
        with tf.device(device):
            tf.raw_ops.SyncDevice()


def configure(choice: StrategyChoice) -> None:
    """Set how operations are placed, and make the `choice.devices` devices: GPUs, or parts of one or of the CPU.

    Call it before any TensorFlow operation. A task needs the GPUs of its CUDA_VISIBLE_DEVICES, which are none if it
    does not compute.

    Raises:
        TfdistError: TensorFlow sees fewer GPUs.
    """
    import tensorflow as tf

    if not choice.soft_placement:
        tf.config.set_soft_device_placement(False)
    if choice.log_device_placement:
        tf.debugging.set_log_device_placement(True)
    if choice.gpus:
        _configure_gpus(choice)
    else:
        _configure_cpu(choice)


def _configure_cpu(choice: StrategyChoice) -> None:
    """Hide all GPUs, and cut the CPU into the devices."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    if choice.devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * choice.devices
        tf.config.set_logical_device_configuration(cpu, parts)


def _configure_gpus(choice: StrategyChoice) -> None:
    """Check that TensorFlow sees the task's GPUs; set how their memory is taken, or cut the one into the devices."""
    import tensorflow as tf

    logical = tf.config.LogicalDeviceConfiguration
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    needed = choice.devices if visible is None else len(set(visible.split(",")) - {NO_GPUS})
    gpus: list[tf.config.PhysicalDevice] = tf.config.list_physical_devices("GPU")
    if len(gpus) < needed:
        description = describe()
        problem = unusable_gpus(LOCAL, description) or unseen_gpus(LOCAL, description)
        cause = problem.sentence if problem else "lower --devices, or check the driver"
        raise TfdistError(f"TensorFlow sees {len(gpus)} GPUs, the task needs {needed}: {cause}")
    if choice.logical_gpus is not None and gpus:
        memory = (describe()["gpu_memory"] or [0])[0]
        if not memory:
            raise TfdistError(
                f"--set logical_gpus={choice.logical_gpus}: nvidia-smi does not report the GPU's memory; omit it"
            )
        # Another process may make the other parts.
        part = logical(memory_limit=int(memory * LOGICAL_SHARE / choice.logical_gpus) >> 20)
        tf.config.set_logical_device_configuration(gpus[0], [part] * choice.devices)
        return
    for gpu in gpus:
        if choice.memory_limit_mb is not None:
            tf.config.set_logical_device_configuration(gpu, [logical(memory_limit=choice.memory_limit_mb)])
        elif choice.memory_growth:
            tf.config.experimental.set_memory_growth(gpu, True)
