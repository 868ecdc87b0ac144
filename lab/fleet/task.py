"""A task that trains nothing: `task.py FILE` reports a step a second, and fails once FILE names it, or any other task.

Real agents run it, and the played ones send what it would write. Standard library only.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

STEP_S = 1.0
CONSEQUENCE_S = 1.0
"""The other tasks of a ring learn of a failure within this time, evenly spread."""
STEPS = 100_000
HELLO = "a task that trains nothing\n"
"""Written to stdout at the start."""
FAILED = 1
"""The exit code of a task that has raised an exception."""


def step_event(step: int) -> dict[str, Any]:
    """What a training of several workers reports of a step."""
    return {
        "event": "step", "step": step, "steps": STEPS, "images_per_s": 64.0, "loss": 2.302585,
        "step_ms": 1000.0 * STEP_S, "every": 1, "own_ms": [412.5], "input_ms": [3.2],
    }  # fmt: skip


def failure(task: str, culprit: str) -> tuple[str, dict[str, Any]]:
    """What a task writes to stderr when `culprit` has failed, and its event: as tasks of a ring with TensorFlow."""
    if task == culprit:
        kind, message = "ValueError", "the batch has 31 labels for 32 images"
        last = f"{kind}: {message}"
    else:
        role, _, index = culprit.rpartition("-")
        kind = "UnavailableError"
        message = (
            "Graph execution error:\n\nDetected at node CollectiveReduceV2 defined at (most recent call last):\n"
            '  File "train.py", line 7, in <module>\n\nCollective ops is aborted by: Socket closed\n'
            f"Additional GRPC error information from remote target /job:{role}/replica:0/task:{index} while calling "
            "/tensorflow.WorkerService/RecvBuf:\n"
            ':UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"Socket closed"}\n'
            "The error could be from a previous operation. Restart your program to reset.\n"
            "\t [[{{node CollectiveReduceV2}}]] [Op:__inference_step_33]"
        )
        last = f"tensorflow.python.framework.errors_impl.{kind}: {message}"
    text = f'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    step()\n{last}\n'
    return text, {"event": "failed", "type": kind, "message": message, "where": "train.py:7", "causes": ""}


def delay_s(number: int, tasks: int) -> float:
    """Seconds from the failure of one of the tasks until this one of the others fails, too."""
    return CONSEQUENCE_S * (number + 1) / tasks


def main(path: Path) -> None:
    """Run as a task of a launch."""
    config = json.loads(os.environ["TF_CONFIG"])
    role, number = config["task"]["type"], config["task"]["index"]
    addresses = config["cluster"][role]
    task, events = f"{role}-{number}", int(os.environ["TFDIST_EVENTS_FD"])
    port = int(addresses[number].rpartition(":")[2])
    sys.stdout.write(HELLO)
    sys.stdout.flush()
    with socket.create_server(("", port), reuse_port=True):
        due, step = time.monotonic(), 0
        while not path.exists():
            step += 1
            os.write(events, json.dumps(step_event(step)).encode() + b"\n")
            due += STEP_S
            while not path.exists() and time.monotonic() < due:
                time.sleep(0.05)  # the poll interval
    culprit = path.read_text(encoding="utf-8")
    if task != culprit:
        time.sleep(delay_s(number, len(addresses)))
    text, event = failure(task, culprit)
    os.write(events, json.dumps(event).encode() + b"\n")
    sys.stderr.write(text)
    sys.exit(FAILED)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
