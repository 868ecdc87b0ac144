"""Measure a program of your own: `tfdist launch` shows its speed, and `tfdist bench` measures it in turns.

Without them, all of this does nothing. Importing it imports no TensorFlow, and costs almost nothing.
"""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from tfdist.launch import events

if TYPE_CHECKING:
    from tfdist.models.custom.callback import Callback as Callback
else:

    def __getattr__(name: str) -> Any:
        # Callback needs its base class, and so TensorFlow.
        if name == "Callback":
            from tfdist.models.custom.callback import Callback

            return Callback
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Callback", "epochs", "steps"]

T = TypeVar("T")


def steps(dataset: Iterable[T], *, examples: int, coordinator: Any = None, first: int = 0) -> Iterator[T]:
    """The batches of `dataset`, for a training loop of one step per batch.

    In a bench it starts again at the end of the data, stops when everything is measured, and has one step from then on.
    Two loops over `steps` count as one. The time between them, and that for a new iterator, is in no window.

    Args:
        dataset: that can be iterated over again.
        examples: in one step of all replicas together (the global batch); with a coordinator, in one scheduled step.
        coordinator: under ParameterServerStrategy, the ClusterCoordinator with which the loop schedules each step.
            Omit it if `tfdist.strategies.current()` builds the strategy, or in the strategy's scope.
        first: number of steps trained before, in a program that continues from a checkpoint: after a restart the
            launcher then knows whether the program gets further.

    Raises:
        TfdistError: an argument is wrong, or the data cannot be iterated over again.
    """
    if "TFDIST_EVENTS_FD" not in os.environ:
        return iter(dataset)
    from tfdist.models.custom.steps import measured

    return measured(dataset, examples, coordinator, first)


def epochs(number: int) -> int:
    """`number`; in a bench, more epochs than fit will ever train: `Callback` ends it."""
    return 1_000_000 if events.in_turns() else number
