"""Signals that the launcher receives become messages."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tfdist.launch.agents.inbox import Inbox
from tfdist.launch.agents.launcher_messages import Interrupted


@contextmanager
def interruptions(inbox: Inbox) -> Iterator[None]:
    """Put SIGINT, SIGTERM and SIGHUP into `inbox` as `Interrupted`. Ignored signals (nohup) stay ignored."""

    def put(number: int, _frame: FrameType | None) -> None:
        inbox.put(None, Interrupted(number))

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    active = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, put) for number in active}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
