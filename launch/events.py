"""Events from a task to its launcher: one JSON object per line, on the file descriptor in TFDIST_EVENTS_FD.

In a task that was started without a launcher all functions do nothing. No TensorFlow.
"""

import json
import os
from typing import Any


def emit(event: str, **values: Any) -> None:
    """Send an event: `ready`, `step` (step, images_per_s, loss), `barrier`, `record` (record), or any other name."""
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
