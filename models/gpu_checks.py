"""Checks of the options for GPUs: their threads, their parts and their memory."""

from collections.abc import Mapping
from typing import Any

from tfdist.launch.errors import MissingHardwareError, TfdistError
from tfdist.launch.machine import Machine
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import Communication, CrossDevice, GpuThreads

_ONE_GPU_ONCE = "NCCL accepts each physical GPU once, so not the parts of one that come from"


def check_gpus(choice: StrategyChoice, chosen: Mapping[str, Any], machine: Machine) -> None:
    """Refuse options for GPUs on a machine without any, and those that contradict each other.

    Raises:
        TfdistError: the first problem.
    """
    if choice.gpu_threads is not GpuThreads.GLOBAL and not machine.gpus:
        raise MissingHardwareError(f"--gpu-threads {choice.gpu_threads} needs GPUs, and none was found: omit it")
    _check_memory(choice, chosen, machine)
    if choice.logical_gpus is None:
        return
    if machine.hosts > 1:
        raise TfdistError(
            f"--logical-gpus {choice.logical_gpus} cuts the GPU of one host, not of {machine.hosts}: omit it"
        )
    parts = f"--logical-gpus {choice.logical_gpus}"
    if choice.communication is Communication.NCCL:
        raise TfdistError(f"--communication nccl: {_ONE_GPU_ONCE} {parts}; use ring or auto")
    if choice.cross_device is CrossDevice.NCCL:
        raise TfdistError(
            f"--cross-device nccl: {_ONE_GPU_ONCE} {parts}; use hierarchical-copy, reduction-to-one or auto"
        )


def _check_memory(choice: StrategyChoice, chosen: Mapping[str, Any], machine: Machine) -> None:
    """TensorFlow takes a limited memory at the start: of a device with a limit, it refuses to let the memory grow."""
    options = []
    if choice.memory_limit_mb is not None:
        options.append(f"--memory-limit {choice.memory_limit_mb}")
    if "memory_growth" in chosen:
        options.append("--memory-growth" if choice.memory_growth else "--no-memory-growth")
    if options and not machine.gpus:
        raise MissingHardwareError(f"{options[0]} needs GPUs, and none was found: omit it")
    if options and choice.logical_gpus is not None:
        raise TfdistError(
            f"{options[0]}: --logical-gpus {choice.logical_gpus} gives each part of the GPU a fixed share of its "
            "memory; omit one of them"
        )
    if len(options) > 1:
        raise TfdistError(f"{' and '.join(options)}: a limited memory is taken at the start; omit one of them")
