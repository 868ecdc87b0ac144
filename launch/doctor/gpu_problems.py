"""GPUs that TensorFlow cannot use: why, and how to fix it. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from tfdist.launch.errors import Problem
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import WITHOUT_GPUS
from tfdist.launch.text import counted

OLDEST_DRIVER = "525.60.13"
"""The first driver that runs CUDA 12, which TensorFlow 2.21 is built with (its `and-cuda` packages end in -cu12).
Source: NVIDIA's table of minor version compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/."""


def unseen_gpus(host: Host, hello: Mapping[str, Any]) -> Problem | None:
    """Why TensorFlow sees none of the host's GPUs; None if it should, or has none.

    Args:
        host: to name in the problem.
        hello: its description, without TensorFlow: the driver, the CUDA libraries and CUDA_VISIBLE_DEVICES decide.
    """
    if host.gpus == WITHOUT_GPUS:
        return None
    if hello["gpus"]:
        return _old_driver(host, hello) or _missing_libraries(host, hello)
    if hello["gpus_hidden"]:
        what = f"CUDA_VISIBLE_DEVICES hides {counted(hello['gpus_hidden'], 'GPU')}"
        return Problem(what, "run 'unset CUDA_VISIBLE_DEVICES' on the host to use them", host.name)
    return None


def _old_driver(host: Host, hello: Mapping[str, Any]) -> Problem | None:
    if _version(hello["driver"]) >= _version(OLDEST_DRIVER):
        return None
    what = f"driver {hello['driver']} is older than {OLDEST_DRIVER}, which CUDA 12 needs, so TensorFlow may see no GPU"
    return Problem(what, "install a newer NVIDIA driver", host.name)


def _missing_libraries(host: Host, hello: Mapping[str, Any]) -> Problem | None:
    missing, version = hello["cuda_missing"], hello["packages"].get("tensorflow")
    if not missing or version is None:  # a program without TensorFlow may need others
        return None
    what = f"CUDA libraries are missing ({', '.join(missing)}), so TensorFlow sees no GPU"
    command = f"{hello['executable']} -m pip install 'tensorflow[and-cuda]=={version}'"
    return Problem(what, f"run on the host: {command}", host.name)


def _version(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version))) or (10**9,)  # an unknown version counts as new
