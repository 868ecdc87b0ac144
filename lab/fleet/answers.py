"""What a played agent answers: the messages of `launch/agents/messages.py`, as JSON values."""

import hashlib
import os
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from tfdist.launch.agent_program.counters import counters
from tfdist.launch.agent_program.system import event_time, host_usage

FREE_PORTS = count(20_000)
"""Ports that `Reserve` gets where any free one would do; nothing listens on them."""
STACKS = "".join(f'  File "train.py", line {line}, in step\n' for line in range(40))
"""Of one thread, about as long as those of a training."""
CPU_S, MEMORY_BYTES = 12.5, 900_000_000


def answers_to(message: dict[str, Any], task: str, attempt: int) -> list[dict[str, Any]]:
    """The answer to a request, after what belongs to it; `task` is the one that runs, empty without one."""
    of_task = {"task": task, "attempt": attempt}
    text = f"Thread 0x0001 (most recent call first):\n{STACKS}"
    running = [task] if task in message.get("tasks", ()) else []
    before: list[dict[str, Any]] = []
    match message["kind"]:
        case "prepare":
            cwd = os.path.expanduser(message["cwd"])  # noqa: PTH111 - as the agent does
            reply = {"kind": "prepared", "requested": cwd, "actual": cwd, "digest": _digest(cwd, message["script"])}
        case "reserve":
            reply = {"kind": "reserved", "ports": [port or next(FREE_PORTS) % 65_000 for port in message["ports"]]}
        case "dial":
            reply = {"kind": "dial_result", "failures": [""] * len(message["targets"])}
        case "inspect":
            reply = _inspected(running, message["counters"])
        case "dump_stacks":
            before = [{"kind": "output", **of_task, "stream": "stacks", "text": text} for _ in running]
            reply = {"kind": "stacks_dumped", "methods": dict.fromkeys(running, "faulthandler")}
        case "end_agent":
            reply = {"kind": "agent_ended", "reason": ""}
        case "check_folder":
            reply = {"kind": "folder_checked", "reason": ""}
        case "find_written":
            reply = {"kind": "written", "names": [], "count": 0}
        case kind:
            raise ValueError(f"{kind}: no answer to it is known; add one here")
    return [*before, {**reply, "request": message["request"]}]


def _inspected(running: list[str], with_counters: bool) -> dict[str, Any]:
    def each(value: Any) -> dict[str, Any]:
        return dict.fromkeys(running, value)

    counted = {"counters": each(counters(os.getpid(), [], {}))} if with_counters else {}
    values = {"states": each("S"), "waits": each("futex_wait_queue"), "cpu_s": each(CPU_S)}
    resident = {"resident_bytes": each(MEMORY_BYTES)}
    return {"kind": "inspected", **values, **resident, **counted, "host": host_usage(), "time": event_time()}


@cache
def _digest(folder: str, script: str) -> str:
    return hashlib.sha256(Path(folder, script).read_bytes()).hexdigest() if script else ""


def exited(task: str, attempt: int, code: int) -> dict[str, Any]:
    """The end of a task."""
    used = {"peak_memory_bytes": MEMORY_BYTES, "cpu_s": CPU_S}
    return {"kind": "exited", "task": task, "attempt": attempt, "code": code, "time": event_time(), **used}
