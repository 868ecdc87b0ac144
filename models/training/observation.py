"""The process of a task, its libraries and the settings that affect its speed."""

import os
import platform
import resource
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import psutil

import tfdist
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

_POLICIES = {os.SCHED_OTHER: "normal", os.SCHED_BATCH: "batch"}
_KERAS = {Keras.TWO: "tf_keras", Keras.THREE: "keras"}


def since_start() -> float:
    """Seconds since the operating system started this process."""
    return time.time() - psutil.Process().create_time()


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that affect TensorFlow's speed."""
    return {name: value for name, value in sorted(variables.items()) if name in SPEED_VARIABLES}


def software(keras: Keras) -> dict[str, str]:
    """Versions from package metadata, and `gpu_software`. `keras` is the package that trains, with its backend.

    TensorFlow must have been imported with that Keras.
    """
    from tfdist.models.training.gpu_software import gpu_software

    package = _KERAS[keras]
    return {
        "tensorflow": version("tensorflow"),
        "keras": f"{package} {version(package)} (tensorflow)",
        "python": platform.python_version(),
        "tfdist": tfdist.__version__,
        "numpy": version("numpy"),
        **gpu_software(),
    }


def process() -> dict[str, Any]:
    """The fields of RankRecord that come from the operating system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "host": platform.node(),
        "peak_memory_bytes": usage.ru_maxrss * 1024,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "affinity": tuple(sorted(os.sched_getaffinity(0))),
        "scheduling": _POLICIES.get(os.sched_getscheduler(0), "other"),
    }


def phases_after_import(started_at: float, built_at: float, opened_at: float, first_step_at: float) -> dict[str, float]:
    """Seconds of each start-up phase, from the clock at their edges."""
    return {"strategy": built_at - started_at, "build": opened_at - built_at, "trace": first_step_at - opened_at}
