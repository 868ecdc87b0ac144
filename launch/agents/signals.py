"""Signals to the launcher become messages, and what a lost agent leaves on this machine is killed."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from tfdist.launch.agents.channel import Inbox
from tfdist.launch.agents.messages import Interrupted


def kill_groups(pids: Iterable[int]) -> None:
    """End what is left of tasks whose agent was killed: each led a process group of its own."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


@contextmanager
def interruptions(inbox: Inbox) -> Iterator[None]:
    """While this lasts, SIGINT, SIGTERM and SIGHUP are events like others; one that is ignored (nohup) stays so."""

    def put(number: int, _frame: FrameType | None) -> None:
        inbox.put((None, Interrupted(number)))

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    wanted = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, put) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
