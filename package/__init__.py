"""Run and measure TensorFlow's distributed training."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdist import bench as bench
    from tfdist import measure as measure
    from tfdist import strategies as strategies

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("bench", "measure", "strategies"):  # imported at their first use
        return import_module(f"tfdist.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
