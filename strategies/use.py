"""Tells the launcher which strategy a program trains under: the event `strategy`. Imports no TensorFlow by itself."""

import sys
from traceback import walk_stack
from typing import TYPE_CHECKING, Any

from tfdist.launch import events

if TYPE_CHECKING:
    import tensorflow as tf


trained: list["tf.distribute.Strategy"] = []
"""The strategies that steps of this process ran under."""


def report(strategy: "tf.distribute.Strategy | None", *, trains: bool) -> None:
    """Send class, replicas in sync and line of a strategy, and whether steps run under it; None: do nothing.

    Once steps ran under it, it is not sent again.
    """
    if strategy is not None and strategy not in trained:
        if trains:
            trained.append(strategy)
        name, replicas = type(strategy).__name__, strategy.num_replicas_in_sync
        line = events.program_line(walk_stack(sys._getframe()))
        events.emit("strategy", name=name, replicas=replicas, trains=trains, line=line)


def report_first_step(strategy: "tf.distribute.Strategy | None") -> None:
    """Send the event when a step first runs under it: `Strategy.run` calls its `extended`, as `Model.fit` does.

    A ClusterCoordinator schedules functions that may not call `run`: their first one counts, too.
    """
    if strategy is None or strategy in trained:
        return
    places: list[tuple[Any, str]] = [(strategy.extended, "call_for_each_replica"), (strategy.extended, "tpu_run")]
    if "ParameterServer" in type(strategy).__name__:
        from tensorflow import distribute

        places.append((distribute.coordinator.ClusterCoordinator, "schedule"))
    originals = [(owner, name, getattr(owner, name)) for owner, name in places if hasattr(owner, name)]

    def observed(original: Any) -> Any:
        def first(*args: Any, **kwargs: Any) -> Any:
            report(strategy, trains=True)
            while originals:
                setattr(*originals.pop())
            return original(*args, **kwargs)

        return first

    for owner, name, original in tuple(originals):
        setattr(owner, name, observed(original))
