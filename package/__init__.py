"""Run and measure TensorFlow's distributed training."""

TYPE_CHECKING = False  # as typing's, whose import takes a while
if TYPE_CHECKING:
    from tfdist import bench as bench
    from tfdist import measure as measure
    from tfdist import strategies as strategies
    from tfdist.cli.python_api import Result as Result
    from tfdist.cli.python_api import RunFailed as RunFailed
    from tfdist.cli.python_api import check as check
    from tfdist.cli.python_api import run as run
    from tfdist.launch.errors import TfdistError as TfdistError
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module  # what is asked for is imported at its first use

        if name in ("bench", "measure", "strategies"):
            return import_module(f"tfdist.{name}")
        if name in ("Result", "RunFailed", "check", "run"):
            return getattr(import_module("tfdist.cli.python_api"), name)
        if name == "TfdistError":
            return import_module("tfdist.launch.errors").TfdistError
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.2.0"
