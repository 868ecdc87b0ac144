"""Times commands. Those that are compared take turns in one run."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PYTHON = sys.executable
TFDIST = str(Path(sys.executable).with_name("tfdist"))
NO_OP = (PYTHON, "-c", "pass")


def timed(argv: Sequence[str]) -> tuple[float, int]:
    """Wall seconds and peak memory in bytes of one run of a command. Its stdout goes to /dev/null."""
    start = time.perf_counter()
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{argv} exited with code {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def in_turns(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[float]]:
    """Wall seconds of each command in each round, after one warm-up round."""
    turns = [{name: timed(argv)[0] for name, argv in commands.items()} for _ in range(rounds + 1)]
    return {name: [turn[name] for turn in turns[1:]] for name in commands}
