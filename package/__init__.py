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
    _MODULES = {
        **dict.fromkeys(("bench", "measure", "strategies"), ""),
        **dict.fromkeys(("Result", "RunFailed", "check", "run"), "cli.python_api"),
        "TfdistError": "launch.errors",
    }
    """Where each name is; empty: it is a module."""

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # what is asked for is imported at its first use

        module = _MODULES[name]
        return getattr(import_module(f"tfdist.{module}"), name) if module else import_module(f"tfdist.{name}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})


__version__ = "0.2.0"
