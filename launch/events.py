"""Events from a task to its launcher: one JSON object per line, on the file descriptor in TFDIST_EVENTS_FD.

In a task that was started without a launcher all functions do nothing. No TensorFlow.
"""

import faulthandler
import json
import os
import signal
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any

from tfdist.launch.agent_program.json_lines import to_line
from tfdist.launch.str_enum import StrEnum

VALUE = "value"
"""The event with a part of what a function returns (`values.py`)."""
SIGNAL = signal.SIGRTMAX - 3
"""Unused by Python, TensorFlow, CUDA and the C library (man 7 signal)."""


@cache
def dump_on_request() -> None:
    """Make `SIGNAL` write the stacks of all threads to the agent, also while C++ code blocks the main thread.

    Announces it with the event `stacks`. Without a launcher, or if the program handles this signal itself, do nothing.
    """
    descriptor = _pipe("TFDIST_STACKS_FD")
    if descriptor is not None and signal.getsignal(SIGNAL) is signal.SIG_DFL:
        faulthandler.register(SIGNAL, file=descriptor, all_threads=True, chain=False)
        emit("stacks", signal=int(SIGNAL), pid=os.getpid())


def _pipe(variable: str) -> int | None:
    """The descriptor in a variable; None without one, or if a task has started this process, which closed the pipe."""
    with suppress(OSError):
        descriptor = int(os.environ.get(variable, "-1"))
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return descriptor
    return None


MOST_MESSAGE = 4000
"""Characters of an exception's message that are sent: the beginning and, as TensorFlow comes to the point last, the
end."""
MOST_CAUSES = 5
"""Exceptions of a chain that are sent with the last one."""


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
    """Send an event to the launcher, which shows it, or only stores it if the name is unknown.

    Args:
        event: `phase` (phase: a `Phase` or any text), `ready` (the strategy exists), `step` (step, and as far as they
            are known steps: the total, images_per_s, loss), `barrier`, `turn` (windows), `record` (record),
            `checkpoint` (step, examples, path, seconds; final: whether nothing more will be trained), `resumed` (step,
            examples, path), `evaluation` (step, accuracy), `stacks` (signal, pid), or any other name.
        values: of the event; JSON.
    """
    descriptor = _pipe("TFDIST_EVENTS_FD")
    if descriptor is None:
        return
    line = to_line({"event": event, **values})
    while line:
        line = line[os.write(descriptor, line) :]


@dataclass(frozen=True)
class Turn:
    """What to train before waiting at the barrier again."""

    windows: int
    """0: nothing more."""
    steps: int
    """Number of steps of each window."""
    trace: str = ""
    """The folder for a trace under tf.profiler; empty: none."""


def in_turns() -> bool:
    """Whether the launcher releases this task for one turn after the other."""
    return "TFDIST_TURNS" in os.environ


def wait_at_barrier(**values: Any) -> Turn | None:
    """Wait until every training task of the job has called this function, and the launcher lets them continue.

    The barrier goes through the launcher: it needs no cluster and puts no load on the job's network.

    Args:
        values: JSON for the launcher: step_s, the seconds that a step takes.

    Returns:
        The next turn; None: no turns. A further call waits again, unless the launcher stops the job.
    """
    descriptor = os.environ.get("TFDIST_BARRIER_FD")
    if descriptor is None:
        return None
    emit("barrier", **values)
    with open(int(descriptor), "rb", buffering=0, closefd=False) as barrier:
        line = barrier.readline()
    turn = json.loads(line) if line.endswith(b"\n") else None
    return Turn(int(turn["windows"]), int(turn["steps"]), str(turn.get("trace", ""))) if turn else None


def report_failures() -> None:
    """Send the event `failed` when an exception is about to end this program: its type, message, place and causes.

    What Python prints, and the exit code, remain as they are. Exceptions in other threads end no program. Exceptions
    in forked processes are not reported.
    """
    if "TFDIST_EVENTS_FD" not in os.environ or getattr(sys.excepthook, "reports", False):
        return
    previous = sys.excepthook
    process = os.getpid()

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, Exception) and os.getpid() == process:
            report_failure(error)
        previous(kind, error, trace)

    report.reports = True  # type: ignore[attr-defined]
    sys.excepthook = report


def report_failure(error: BaseException, kind: str | None = None) -> None:
    """Send the event `failed` for this exception; `kind` replaces the name of its class. Never raises."""
    with suppress(Exception):
        causes: list[str] = []
        cause = error
        for _ in range(MOST_CAUSES):
            context = None if cause.__suppress_context__ else cause.__context__
            if (before := cause.__cause__ or context) is None:
                break
            causes.append(f"{type(before).__qualname__}: {_bounded(str(before))}")
            cause = before
        kind = type(error).__qualname__ if kind is None else kind
        places = list(walk_tb(error.__traceback__))
        message = _bounded(str(error))
        # the innermost line of the user's program; else the innermost one
        place = program_line(places[::-1]) or (_text(*places[-1]) if places else "")
        emit("failed", type=kind, message=message, where=place, causes=_bounded("\n".join(causes)))


def _bounded(text: str) -> str:
    text = text.encode(errors="replace").decode()  # the agent refuses half of a UTF-16 character
    first = MOST_MESSAGE // 4
    return text if len(text) <= MOST_MESSAGE else f"{text[:first]} ... {text[first - MOST_MESSAGE :]}"


def program_line(places: Iterable[tuple[FrameType, int]]) -> str:
    """The first of these frames and lines that is in no library, as `train.py:12`; empty if none is."""
    import sysconfig

    libraries = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    for frame, line in places:
        is_tfdist = frame.f_globals.get("__name__", "").startswith("tfdist.")
        if not is_tfdist and not frame.f_code.co_filename.startswith((*libraries, "<")):
            return _text(frame, line)
    return ""


def _text(frame: FrameType, line: int) -> str:
    from pathlib import Path

    return f"{frame.f_code.co_filename.removeprefix(f'{Path.cwd()}/')}:{line}"
