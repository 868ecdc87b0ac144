"""Faults inside a task. Python imports this file at its start, if its folder is on PYTHONPATH.

TFDIST_FAULTS is a folder. A file in it with the name of this task is an order: `MOMENT FAULT`, obeyed once, or
`MOMENT FAULT always`. The moments `start`, `step-N` and `last` are at the task's first event, its first `step` event from
step N on, and that of its last step: in the main thread, in the training loop. `now` is in another thread, for tasks
that only serve. The event `fault` is emitted at once before.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

POLL_S = 0.05
PACE_S = float(os.environ.get("TFDIST_FAULTS_PACE", "0"))
"""Pause after each `step` event, so that a training does not end before the fault."""
BLOCK = 32 << 20
LONG_S = 3600.0


def act(fault: str) -> None:
    """Fail in this way."""
    if fault == "exception":
        raise ValueError("bad data")
    if fault.startswith("exit-"):
        os._exit(int(fault.removeprefix("exit-")))
    if fault == "sleep":
        time.sleep(LONG_S)
    blocks = []
    while fault == "memory":
        blocks.append(b"x" * BLOCK)  # written, so that it is resident


def due(moment: str, event: str, values: Mapping[str, Any]) -> bool:
    """Whether an event of this task is the moment of an order."""
    if moment.startswith("step-"):
        return event == "step" and int(values["step"]) >= _number(moment)
    return moment == "start" or (moment == "last" and event == "step" and values["step"] == values["steps"])


def obey(path: Path, is_due: Callable[[str], bool], send: Callable[..., None]) -> None:
    """Do what the order in this file says, if there is one and its moment has come."""
    try:
        moment, fault, *always = path.read_text().split()
    except FileNotFoundError:
        return
    if is_due(moment):
        if not always:
            path.unlink()
        send("fault", fault=fault)
        act(fault)


def order() -> Path:
    """The file with the order of this task."""
    return Path(os.environ["TFDIST_FAULTS"], os.environ["TFDIST_TASK"])


def install() -> None:
    """Obey orders at the events of this task, or of those that are forked from this process."""
    from tfdist.launch import events

    send = events.emit
    watched = set[int]()

    def emit(event: str, **values: Any) -> None:
        send(event, **values)
        if "TFDIST_TASK" not in os.environ or os.getpid() != os.getsid(0) or event == "failed":
            return  # a template; a process that the task has forked
        start_watch()
        if event == "step":
            time.sleep(PACE_S)
        obey(order(), lambda moment: due(moment, event, values), send)

    def watch() -> None:
        while True:
            obey(order(), lambda moment: moment == "now", send)
            time.sleep(POLL_S)

    def start_watch() -> None:
        if os.getpid() not in watched:
            watched.add(os.getpid())
            threading.Thread(target=watch, daemon=True).start()

    events.emit = emit
    obey_in_saves(send)
    if "TFDIST_TASK" in os.environ:
        start_watch()


def obey_in_saves(send: Callable[..., None]) -> None:
    """Obey orders when a checkpoint's manifest is about to be written."""
    from tfdist.models.checkpoints import Manifest

    write = Manifest.to_text

    def to_text(manifest: Manifest) -> str:
        obey(order(), lambda moment: moment.startswith("save-") and manifest.step >= _number(moment), send)
        return write(manifest)

    Manifest.to_text = to_text  # type: ignore[assignment]


def _number(moment: str) -> int:
    return int(moment.rpartition("-")[2])


if "TFDIST_FAULTS" in os.environ:
    install()
