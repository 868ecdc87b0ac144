"""How a task ended, and what it wrote about that: the exception, and whose failure caused it. Pure."""

import math
import re
import signal
from collections.abc import Sequence
from dataclasses import replace

from tfdist.launch.agents.inbox import Stopped
from tfdist.launch.agents.messages import Exited
from tfdist.launch.diagnosis.history import ErrorText, History, OutputLine, ReportedError
from tfdist.launch.errors import SIGNALS, ExitCode
from tfdist.launch.tensorflow_output import LOG_LINE, NOISE
from tfdist.launch.text import signal_name


def killed_from_outside(code: int) -> bool:
    """Whether another process, or the kernel for lack of memory, has killed the task or the program in its shell."""
    return signal_number(code) in _SENT


def describe_ending(exit: Exited, place: str) -> str:
    """`exited with code 3 on h2`, or `was killed by SIGTERM on h2 (not by tfdist)`; `place` is ` on h2` or empty."""
    code = exit.code
    number = signal_number(exit.code)
    if number is None:
        return f"exited with code {code}{place}" + (" (restart requested)" if code == ExitCode.PREEMPTED else "")
    killed = f"was killed by {signal_name(number)}{place}"
    if code > 0:
        killed = f"exited with code {code}{place} (its program was killed by {signal_name(number)})"
    if number == signal.SIGKILL and (exit.oom_kills or exit.kernel_log):
        return f"{killed}: out of memory" + (f" (kernel log: {exit.kernel_log.strip()})" if exit.kernel_log else "")
    return f"{killed} (not by tfdist)" if code < 0 and number in _SENT else killed


def describe_stopped(exit: Exited, stopped: Stopped, place: str) -> str:
    """The end of a task that tfdist stopped: `stopped by tfdist, with SIGKILL after 5 s`."""
    number = signal_number(exit.code)
    if number == signal.SIGKILL:
        seconds = round(max(0.0, exit.time - stopped.time))
        return f"stopped by tfdist{place}, with SIGKILL" + (f" after {seconds} s" if seconds else "")
    if number is not None or exit.code == 0:
        return f"stopped by tfdist{place}"
    return f"stopped by tfdist{place} (exited with code {exit.code})"


def exit_code(code: int) -> int:
    """The exit code of the launcher for that of a task, as in a shell: 128+n for a signal n."""
    return code if code >= 0 else SIGNALS - code


def signal_number(code: int) -> int | None:
    """The signal that ended a process or, as its shell reports, the program in it; None: it exited by itself."""
    if code < 0:
        return -code
    return code - SIGNALS if 0 < code - SIGNALS <= signal.SIGTERM else None


_SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a process does not cause itself."""


PEER_FAILURE = re.compile(
    r"Additional GRPC error information"
    r"|Error reported from /job:"
    r"|stopped sending heartbeats"
    r"|RPC: /tensorflow\.\w+/"
    r"|Collective has timed out"
    r"|ncclRemoteError|NCCL: remote process exited"
    # from the first such error on; the lookahead is not tried again at the later ones, which would take minutes
    r"|\A(?=(.*?(?:Unavailable|DeadlineExceeded|Cancelled|Aborted)Error\b))\1.*"
    r"Collective ops (?:is aborted by|already aborted)",
    re.DOTALL,
)
"""Errors that TensorFlow reports in a task whose peer has failed. A gRPC client of the user's program can say "failed
to connect to all addresses" or "Socket closed", too; only TensorFlow's errors about peers have one of these texts. A
collective that its own task refuses (a mismatch of shapes) ends in another exception. Source: runs with
tensorflow 2.21 in which a peer was killed, stopped, raised an exception, or exited; for NCCL its list of result codes,
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclresult-t."""
LAST_LINES = 20
"""Lines of a failed task that are shown if it raised no exception."""
MOST_LINES = 40
"""Lines of a traceback that are shown."""

_HEADER = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?:: ?(.*))?$")
_RAISED_ALONE = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception)): ?(.*)$")
"""The same if the start of the traceback is missing."""
_PEER = re.compile(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)")
_COORDINATOR = "tensorflow.CoordinationService"
_ENDED_ON_REQUEST = ("KeyboardInterrupt", "SystemExit")


def raised(lines: Sequence[OutputLine]) -> ErrorText | None:
    """The last exception in a log; None if there is none. The start of its traceback may be missing."""
    texts = [line.text for line in lines]
    headers = [index for index, text in enumerate(texts) if text == _HEADER]
    if headers:
        ends = range(headers[-1] + 1, len(texts))
        end = next((index for index in ends if texts[index] and not texts[index].startswith(" ")), None)
        match = _RAISED.match(texts[end]) if end is not None else None
        start = headers[-1]
        for header in reversed(headers[:-1]):
            if not any(text in _CHAINED for text in texts[header:start]):
                break
            start = header
    else:
        alone = (index for index in reversed(range(len(texts))) if _RAISED_ALONE.match(texts[index]))
        end = next(alone, None)
        match = _RAISED_ALONE.match(texts[end]) if end is not None else None
        start = end or 0
    if end is None or match is None:
        return None
    rest = texts[end + 1 :]
    until = next((index for index, text in enumerate(rest) if LOG_LINE.match(text)), len(rest))
    message = "\n".join([match[2] or "", *rest[:until]])
    shown = tuple(text for text in texts[start : end + 1 + until] if not NOISE.match(text))
    return ErrorText(match[1].rpartition(".")[2], message, lines[end].time, "\n".join(texts[start:end]), shown)


def exception_of(task: str, history: History) -> ErrorText | None:
    """The last exception of a task: as it reported it, with the traceback of its log, or only from its log."""
    logged = raised(history.lines(task)) or raised(history.lines(task, "stdout"))
    report = next((entry for entry in history.select(ReportedError) if entry.task == task), None)
    if report is None or logged is None or logged.type != report.type:
        return report or logged
    return replace(report, causes=report.causes or logged.causes, lines=logged.lines)


def exception_at_exit(task: str, code: int, history: History) -> ErrorText | None:
    """The exception that ended a task; None if it only logged one, and ended for another reason.

    An exception that nothing catches ends a Python process with code 1, possibly after seconds of cleaning up.
    """
    exception = exception_of(task, history)
    if exception is None or isinstance(exception, ReportedError) or code == 1:
        return exception
    if code in (*range(2, 126), 134, -6) and not _continued(task, history, exception):
        return exception
    return None


def exception_before(time: float, task: str, history: History) -> ErrorText | None:
    """The exception of a task that still ran at that time, unless the task continued, or a peer's failure caused it."""
    exception = exception_of(task, history)
    if exception is None or exception.type in _ENDED_ON_REQUEST or exception.time >= time:
        return None
    went_on = not isinstance(exception, ReportedError) and _continued(task, history, exception, time)
    return None if went_on or is_peer_failure(exception.text) else exception


def _continued(task: str, history: History, exception: ErrorText, until: float = math.inf) -> bool:
    # What C++ threads log while the process ends does not count; a message of theirs has several lines.
    lines = [*history.lines(task, "stdout"), *history.lines(task)]
    logged = {line.time for line in lines if LOG_LINE.match(line.text)}
    wrote = any(exception.time + 0.5 < line.time < until and line.time not in logged for line in lines)
    return wrote or history.steps.get(task, (0, 0.0))[1] > exception.time


def is_peer_failure(text: str) -> bool:
    """Whether the text has one of TensorFlow's errors about a task that has failed."""
    return PEER_FAILURE.search(text) is not None


def named_peers(text: str, coordinator: str) -> list[str]:
    """The tasks that TensorFlow's error names, in order; `coordinator` is the task with the coordination service."""
    names = [f"{role}-{index}" for role, index in _PEER.findall(text)]
    return names or ([coordinator] if _COORDINATOR in text else [])


def last_lines(task: str, history: History, exception: ErrorText | None, before: float = math.inf) -> tuple[str, ...]:
    """The traceback of a task, or else its last lines before that time, without what TensorFlow logs on start-up."""
    if exception is not None and exception.lines:
        lines = exception.lines
        return lines if len(lines) <= MOST_LINES else (*lines[: MOST_LINES // 4], "...", *lines[-MOST_LINES * 3 // 4 :])
    for stream in ("stderr", "stdout"):
        texts = [line.text for line in history.lines(task, stream) if line.time < before]
        shown = [text for text in texts if text.strip() and not NOISE.match(text)]
        if shown:
            return tuple(shown[-LAST_LINES:])
    return ()
