"""Readings of this process's GPUs at window edges, from NVML. No TensorFlow.

Throttled GPUs and MIG were not run on hardware: written to
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html and the names and signatures of nvidia-ml-py,
which is optional.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

from tfdist.launch.agent_program import gpus as agent
from tfdist.launch.environment import DEVICE_ORDER
from tfdist.models.record import GpuReading

THROTTLE_REASONS: Mapping[int, str] = {
    0x002: "applications clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "heat (software)",
    0x040: "heat (hardware)",
    0x080: "power brake",
    0x100: "display clock",
}
"""NVML's nvmlClocksEventReason bits. GpuIdle, 0x001, is left out: it slows no kernel."""


@dataclass(frozen=True)
class OpenGpus:
    """NVML's handles of this process's GPUs, by nvidia-smi's index."""

    handles: Mapping[int, Any] = field(default_factory=dict)
    nvml: Any = None
    """The module pynvml; None if it is not used."""
    note: str = ""
    """Why there are no handles; empty without GPUs."""


def gpu_readings() -> tuple[GpuReading, ...]:
    """A reading of each GPU of this process. Empty without GPUs and without NVML; a GPU that fails is left out.

    The handles are opened by the first call, which takes longer.
    """
    gpus = open_gpus()
    readings = []
    for index, handle in gpus.handles.items():
        with suppress(gpus.nvml.NVMLError):
            readings.append(_read(gpus.nvml, index, handle))
    return tuple(readings)


def _read(nvml: Any, index: int, handle: Any) -> GpuReading:
    return GpuReading(
        index=index,
        memory_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).used,
        utilization=nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        energy_j=_energy_j(nvml, handle),
        sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        throttle=_throttle(nvml, handle),
    )


def _energy_j(nvml: Any, handle: Any) -> float | None:
    with suppress(nvml.NVMLError):  # GPUs before Volta have no counter
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    return None


def _throttle(nvml: Any, handle: Any) -> str:
    """The reasons, joined by commas. Drivers before 535 have only the function's old name."""
    for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        with suppress(nvml.NVMLError, AttributeError):
            bits = getattr(nvml, name)(handle)
            return ", ".join(reason for bit, reason in THROTTLE_REASONS.items() if bits & bit)
    return "unknown"


@cache
def open_gpus() -> OpenGpus:
    """The GPUs of CUDA_VISIBLE_DEVICES, opened once."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1") or not agent.device_files():
        return OpenGpus()
    try:
        import pynvml
    except ImportError:
        return OpenGpus(note="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
        return _open(pynvml, visible)
    except pynvml.NVMLError as error:
        return OpenGpus(note=f"NVML failed: {error}")


def _open(nvml: ModuleType, visible: str | None) -> OpenGpus:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    entries = [entry.strip() for entry in (visible or "").split(",")]
    if len(handles) > 1 and any(map(str.isdecimal, entries)) and os.environ.get(DEVICE_ORDER) != "PCI_BUS_ID":
        return OpenGpus(note=f"without {DEVICE_ORDER}=PCI_BUS_ID, CUDA and NVML number GPUs differently")
    if any(entry.startswith("MIG-") for entry in entries):
        return OpenGpus(note="NVML reads whole GPUs, not MIG instances")
    gpus = [agent.Gpu(str(index), uuid, uuid, "") for index, uuid in enumerate(map(nvml.nvmlDeviceGetUUID, handles))]
    chosen = [int(gpu.number) for _, gpu in agent.visible_gpus(gpus, visible)]
    return OpenGpus({index: handles[index] for index in chosen}, nvml)
