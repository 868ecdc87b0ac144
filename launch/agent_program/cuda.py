"""The CUDA libraries that TensorFlow loads, found without loading them. Part of the agent."""

import os
import sys

CUDA_LIBRARIES = {
    "libcudart.so.12": "cuda_runtime",
    "libcublas.so.12": "cublas",
    "libcufft.so.11": "cufft",
    "libcusolver.so.11": "cusolver",
    "libcusparse.so.12": "cusparse",
    "libcudnn.so.9": "cudnn",
}
"""File -> folder below site-packages/nvidia. If one is missing, TensorFlow 2.21 uses no GPU ("Cannot dlopen some GPU
libraries"). Source: the RUNPATH of its libtensorflow_framework.so.2 and the versions of its extra `and-cuda`."""
LINKER_CACHE = "/etc/ld.so.cache"
"""Lists the libraries in the folders of the system; ldconfig writes it."""


def missing_cuda_libraries() -> list[str]:
    """The CUDA libraries that are neither beside TensorFlow nor where the dynamic linker looks."""
    installed = [os.path.join(folder, "nvidia") for folder in sys.path if os.path.isdir(folder)]
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), os.path.join(sys.prefix, "lib")]
    cache = _linker_cache()
    return [
        library
        for library, package in CUDA_LIBRARIES.items()
        if library.encode() not in cache
        and not any(os.path.exists(os.path.join(folder, package, "lib", library)) for folder in installed)
        and not any(folder and os.path.exists(os.path.join(folder, library)) for folder in folders)
    ]


def _linker_cache() -> bytes:
    try:
        with open(LINKER_CACHE, "rb") as file:
            return file.read()
    except OSError:
        return b""
