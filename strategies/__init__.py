"""Which strategies exist, and how to make each. `current()` is for a user's own program."""

from tfdist.strategies.current import current

__all__ = ["current"]
