"""What a task sees of itself: its process, its libraries and the settings that change its speed."""

import os
import platform
import resource
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import psutil

from tfdist.strategies.catalog import Keras

SPEED_PREFIXES = ("TF_", "OMP_", "NCCL_", "XLA_", "CUDA_VISIBLE_DEVICES", "MKL_", "KMP_", "GRPC_")
NO_SPEED = ("TF_CONFIG",)

_KERAS = {Keras.TWO: "tf_keras", Keras.THREE: "keras"}


def since_start() -> float:
    """Seconds since the operating system started this process."""
    return time.time() - psutil.Process().create_time()


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of `variables` that change TensorFlow's speed; where the cluster is, is not among them."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(SPEED_PREFIXES) and name not in NO_SPEED
    }


def software(keras: Keras) -> dict[str, str]:
    """Versions, from the packages' metadata; Keras is the one that trained, on TensorFlow."""
    package = _KERAS[keras]
    return {
        "tensorflow": version("tensorflow"),
        "keras": f"{package} {version(package)} (tensorflow)",
        "python": platform.python_version(),
        "tfdist": version("tfdist"),
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
