"""A program of a bench that speaks the protocol without TensorFlow: a step sleeps for 10 ms."""

import json
import os
import platform
import time
from typing import Any

STEP_S, BATCH = 0.01, 8


def emit(event: str, **values: Any) -> None:
    os.write(int(os.environ["TFDIST_EVENTS_FD"]), json.dumps({"event": event, **values}).encode() + b"\n")


def next_turn() -> dict[str, int]:
    emit("barrier", step_s=STEP_S)
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(int(os.environ["TFDIST_BARRIER_FD"]), 1)):
        line += byte
    turn: dict[str, int] = json.loads(line or '{"windows": 0, "steps": 0}')
    return turn


def window(steps: int) -> dict[str, Any]:
    started_at = time.perf_counter()
    time.sleep(STEP_S * steps)
    return {"steps": steps, "examples": steps * BATCH, "elapsed_s": time.perf_counter() - started_at, "loss": None}


def main() -> None:
    task = os.environ["TFDIST_TASK"]
    if json.loads(os.environ["TFDIST_STRATEGY_CHOICE"])["strategy"] == "parameter-server" and task != "chief-0":
        time.sleep(3600)
    record = {"task": task, "host": platform.node(), "replicas": 1, "warmup": [window(1)], "windows": []}
    record |= {"phases_s": {}, "examples_applied": BATCH, "updates_applied": 1}
    emit("record", record=record)
    while (turn := next_turn())["windows"]:
        window(1)
        emit("turn", windows=[window(turn["steps"]) for _ in range(turn["windows"])])
    emit("record", record=record)


if __name__ == "__main__":
    main()
