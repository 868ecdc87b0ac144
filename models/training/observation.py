"""What a task sees of itself: its process, its libraries and the settings that change its speed."""

import os
import platform
import resource
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import psutil

import tfdist
from tfdist.strategies.catalog import Keras

SPEED_VARIABLES = frozenset(
    [
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "TF_ENABLE_ONEDNN_OPTS",
        "TF_GPU_THREAD_MODE",
        "TF_GPU_THREAD_COUNT",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "TF_GPU_ALLOCATOR",
        "TF_XLA_FLAGS",
        "TF_USE_LEGACY_KERAS",
        "TF_CUDNN_USE_AUTOTUNE",
        "TF_ENABLE_TENSOR_FLOAT_32",
        "TF_OVERRIDE_GLOBAL_THREADPOOL",
        "XLA_FLAGS",
        "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "KMP_BLOCKTIME",
        "KMP_AFFINITY",
        "MALLOC_ARENA_MAX",
        "LD_PRELOAD",
        "NCCL_ALGO",
        "NCCL_PROTO",
        "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_SHM_DISABLE",
        "NCCL_IB_DISABLE",
        "NCCL_NET_GDR_LEVEL",
        "NCCL_SOCKET_IFNAME",
        "NCCL_NTHREADS",
        "NCCL_BUFFSIZE",
        "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_NCHANNELS",
        "NCCL_LAUNCH_MODE",
    ]
)
"""By name, not by prefix: what else begins with TF_ may be a path or a secret, and records are published."""

_KERAS = {Keras.TWO: "tf_keras", Keras.THREE: "keras"}


def since_start() -> float:
    """Seconds since the operating system started this process."""
    return time.time() - psutil.Process().create_time()


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of `variables` that change TensorFlow's speed."""
    return {name: value for name, value in sorted(variables.items()) if name in SPEED_VARIABLES}


def software(keras: Keras) -> dict[str, str]:
    """Versions, from the packages' metadata; Keras is the one that trained, on TensorFlow."""
    package = _KERAS[keras]
    return {
        "tensorflow": version("tensorflow"),
        "keras": f"{package} {version(package)} (tensorflow)",
        "python": platform.python_version(),
        "tfdist": tfdist.__version__,
        "numpy": version("numpy"),
    }


def process() -> dict[str, Any]:
    """The fields of RankRecord that the operating system knows."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "host": platform.node(),
        "peak_memory_bytes": usage.ru_maxrss * 1024,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "affinity": tuple(sorted(os.sched_getaffinity(0))),
    }
