"""How a task talks to its launcher: one JSON object a line on the file descriptor named in TFDIST_EVENTS_FD.

Without a launcher (a task started by hand) everything here does nothing. No TensorFlow.
"""

import json
import os
from typing import Any


def emit(event: str, **values: Any) -> None:
    """Send one event. Known are `ready`, `step` (step, images_per_s, loss), `barrier` and `record` (record)."""
    descriptor = os.environ.get("TFDIST_EVENTS_FD")
    if descriptor is None:
        return
    line = json.dumps({"event": event, **values}).encode() + b"\n"
    while line:
        line = line[os.write(int(descriptor), line) :]


def wait_for_the_others() -> None:
    """The start barrier: return once every training task of the job has come here too.

    It goes over the launcher, so it works for tasks that share no cluster and costs the network of the job nothing.
    """
    descriptor = os.environ.get("TFDIST_BARRIER_FD")
    if descriptor is None:
        return
    emit("barrier")
    os.read(int(descriptor), 1)
