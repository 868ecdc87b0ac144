"""The libraries and settings of a task that computes on GPUs. Import TensorFlow before."""

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

import tensorflow as tf

from tfdist.launch.agent_program.system import read_text
from tfdist.models.training.readings import open_gpus

_WHEELS: Mapping[str, str] = {
    "cuda": "nvidia-cuda-runtime-cu12",
    "cudnn": "nvidia-cudnn-cu12",
    "nccl": "nvidia-nccl-cu12",
}


def gpu_software() -> dict[str, str]:
    """`cuda`, `cudnn`, `nccl`, `driver`, `tf32` (on or off) and `nvidia-ml-py`; empty if TensorFlow sees no GPU.

    Libraries that come from elsewhere than NVIDIA's wheels have the version that TensorFlow was built with.
    """
    if not tf.config.list_physical_devices("GPU"):
        return {}
    built = tf.sysconfig.get_build_info()
    return {
        **{name: _version(wheel) or _built_with(built.get(f"{name}_version")) for name, wheel in _WHEELS.items()},
        "driver": read_text("/sys/module/nvidia/version").strip() or "unknown",
        "tf32": "on" if tf.config.experimental.tensor_float_32_execution_enabled() else "off",
        "nvidia-ml-py": open_gpus().note or _version("nvidia-ml-py"),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _built_with(number: str | None) -> str:
    return f"built with {number}" if number else "unknown"


def peak_gpu_memory(devices: Sequence[str]) -> tuple[int, ...]:
    """The most bytes that TensorFlow has allocated on each GPU of these devices, e.g. `extended.worker_devices`.

    Those of this process only: TensorFlow does not report the memory of other tasks' devices.
    """
    gpus = [device for device in devices if "GPU" in device]
    return tuple(tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus)
