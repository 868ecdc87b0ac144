"""The strategies and how to build them. A custom program calls `current()`."""

from tfdist.strategies.current import current

__all__ = ["current"]
