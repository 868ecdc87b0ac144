"""The process of a task, its libraries and the settings that affect its speed."""

import os
import platform
import re
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

import tfdist
from tfdist.launch.agent_program.optional import scheduling
from tfdist.launch.agent_program.system import read_text
from tfdist.models.spec import XLA_CACHE
from tfdist.models.training.readings import open_gpus
from tfdist.models.training.windows import WindowLog
from tfdist.strategies.options import LEGACY_KERAS, Keras

SPEED_VARIABLES = frozenset([
    "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_ENABLE_ONEDNN_OPTS", "TF_GPU_THREAD_MODE",
    "TF_GPU_THREAD_COUNT", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_XLA_FLAGS", LEGACY_KERAS,
    "TF_CUDNN_USE_AUTOTUNE", "TF_ENABLE_TENSOR_FLOAT_32", "TF_OVERRIDE_GLOBAL_THREADPOOL", "XLA_FLAGS",
    "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_BLOCKTIME", "KMP_AFFINITY", "MALLOC_ARENA_MAX",
    "LD_PRELOAD", "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE",
    "NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL", "NCCL_SOCKET_IFNAME", "NCCL_NTHREADS", "NCCL_BUFFSIZE",
    "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_LAUNCH_MODE",
])  # fmt: skip
"""Variables by name, not by prefix: another TF_ variable may hold a path or a secret, and records are published."""

_CACHE_FOLDER = re.compile(rf"""{XLA_CACHE}=("(\\.|[^"])*"|'[^']*'|\S*)\s*""")
_WHEELS = {"cuda": "nvidia-cuda-runtime-cu12", "cudnn": "nvidia-cudnn-cu12", "nccl": "nvidia-nccl-cu12"}


def since_start() -> float:
    """Seconds since the operating system started this process."""
    return time.time() - psutil.Process().create_time()


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that affect TensorFlow's speed, without the folder of XLA's programs: it does not."""
    kept = {name: value for name, value in sorted(variables.items()) if name in SPEED_VARIABLES}
    if "TF_XLA_FLAGS" in kept:
        kept["TF_XLA_FLAGS"] = _CACHE_FOLDER.sub("", kept["TF_XLA_FLAGS"]).strip()
    return kept


def software(keras: Keras) -> dict[str, str]:
    """The versions of what is imported, and `gpu_software`. `keras` is the package that trains, with its backend.

    TensorFlow must have been imported with that Keras. A program without TensorFlow has the versions of its framework.
    """
    common = {"python": platform.python_version(), "tfdist": tfdist.__version__, "numpy": version("numpy")}
    if "tensorflow" not in sys.modules:
        others = (sys.modules.get(name) for name in ("torch", "jax", "keras"))
        return {**{each.__name__: str(each.__version__) for each in others if each}, **common}
    package = "tf_keras" if keras is Keras.TWO else "keras"
    return {
        "tensorflow": sys.modules["tensorflow"].__version__,
        "keras": f"{package} {import_module(package).__version__} (tensorflow)",
        **common,
        **gpu_software(),
    }


def gpu_software() -> dict[str, str]:
    """`cuda`, `cudnn`, `nccl`, `driver`, `tf32` (on or off) and `nvidia-ml-py`; empty if TensorFlow sees no GPU.

    Libraries that come from elsewhere than NVIDIA's wheels have the version that TensorFlow was built with.
    """
    import tensorflow as tf

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
    if not gpus:
        return ()
    import tensorflow as tf

    return tuple(tf.config.experimental.get_memory_info(device)["peak"] for device in gpus)


def process(keras: Keras, devices: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of RankRecord about this process, its libraries and its settings.

    Args:
        keras: see `software`.
        devices: see `peak_gpu_memory`.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "host": platform.node(),
        "peak_memory_bytes": usage.ru_maxrss * 1024,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "affinity": tuple(sorted(os.sched_getaffinity(0))),
        "scheduling": scheduling(),
        "software": software(keras),
        "environment": environment(os.environ),
        "gpu_peak_bytes": peak_gpu_memory(devices),
    }


def first_step_phases(log: WindowLog) -> dict[str, float]:
    """`trace` and `first_step_end` of RankRecord.phases_s, after the first step."""
    since_first_step = log.clock() - log.first_step_at
    return {"trace": log.first_step_at - log.opened_at, "first_step_end": since_start() - since_first_step}
