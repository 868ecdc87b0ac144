"""Signals that the launcher receives become messages."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tfdist.launch.agents.inbox import Interrupted

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Ctrl-C, `kill`, a closed terminal, and a scheduler that will end the job soon."""
REPEAT_S = 0.2
"""The same signal within this time counts once: `timeout` and others send it to the process and then to its group."""


@contextmanager
def interruptions(put: Callable[[Interrupted], None]) -> Iterator[None]:
    """Pass `INTERRUPTIONS` to `put`. Ignored signals (nohup) stay ignored.

    From a thread: a handler in Python runs only when the main thread does, which may wait for a message. The thread
    learns of a signal at once, whichever thread the kernel interrupts (`signal.set_wakeup_fd`).
    Outside the main thread, which alone can receive signals, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    active = [number for number in INTERRUPTIONS if signal.getsignal(number) is not signal.SIG_IGN]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    thread = threading.Thread(target=_put_all, args=(reader, active, put), name="signals", daemon=True)
    thread.start()
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    previous = {number: signal.signal(number, lambda *_: None) for number in active}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(writer)
        thread.join()
        os.close(reader)


def _put_all(reader: int, active: list[signal.Signals], put: Callable[[Interrupted], None]) -> None:
    last: dict[int, float] = {}
    while data := os.read(reader, 64):
        now = time.monotonic()
        for number in [number for number in data if number in active]:
            if now - last.get(number, -REPEAT_S) >= REPEAT_S:
                put(Interrupted(number))
            last[number] = now
