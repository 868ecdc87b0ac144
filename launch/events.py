"""Events from a task to its launcher: one JSON object per line, on the file descriptor in TFDIST_EVENTS_FD.

In a task that was started without a launcher all functions do nothing. No TensorFlow.
"""

import json
import os
from typing import Any

from tfdist.launch.str_enum import StrEnum


class Phase(StrEnum):
    """What a task does before its first step, or after its last one."""

    IMPORTING = "importing"
    """Importing TensorFlow."""
    CONNECTING = "connecting"
    """Creating a strategy that connects to the other tasks; some wait here until all of them have been started."""
    BUILDING = "building"
    """Creating the model, the data set, and a strategy without a cluster."""
    TRACING = "tracing"
    """The first step: TensorFlow traces and compiles it."""
    EVALUATING = "evaluating"


def emit(event: str, **values: Any) -> None:
    """Send an event to the launcher, which shows it, or stores it if it does not know its name.

    Args:
        event: `phase` (phase: a `Phase` or any text), `ready` (the strategy exists), `step` (step, and as far as they
            are known steps: the total, images_per_s, loss), `barrier`, `record` (record), or any other name.
        values: of the event; JSON.
    """
    descriptor = os.environ.get("TFDIST_EVENTS_FD")
    if descriptor is None:
        return
    line = json.dumps({"event": event, **values}).encode() + b"\n"
    while line:
        line = line[os.write(int(descriptor), line) :]


def wait_at_barrier() -> None:
    """Wait until every training task of the job has called this function.

    The barrier goes through the launcher: it needs no cluster and puts no load on the job's network.
    """
    descriptor = os.environ.get("TFDIST_BARRIER_FD")
    if descriptor is None:
        return
    emit("barrier")
    os.read(int(descriptor), 1)
