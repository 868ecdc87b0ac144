"""Run and measure TensorFlow's distributed training."""

TYPE_CHECKING = False  # as typing's, whose import takes a while
if TYPE_CHECKING:
    from tfdist import bench as bench
    from tfdist import measure as measure
    from tfdist import strategies as strategies
else:

    def __getattr__(name: str) -> object:
        if name in ("bench", "measure", "strategies"):  # imported at their first use
            from importlib import import_module

            return import_module(f"tfdist.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.2.0"
