"""One thread that waits for the pipes of all agents.

With a thread for each of 1,000 agents, these wait for the interpreter's lock longer than they read.
"""

import os
import select
import threading
import traceback
from collections.abc import Callable

from tfdist.launch.threads import start_thread


class Streams:
    """Calls functions from its thread when descriptors, which must not block, can be read or written.

    A function must return at once. Only one runs at a time.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)  # it has no thread, and that of its parent may hold the locks

    def _reset(self) -> None:
        self.lock = threading.RLock()
        """Held while a function is called: who holds it may close descriptors."""
        self._starting = threading.Lock()
        self._epoll: select.epoll | None = None
        self._functions: dict[int, Callable[[], None]] = {}

    def call(self, function: Callable[[], None], descriptor: int, writable: bool = False) -> None:
        """Call the function whenever the descriptor can be read, or written.

        Raises:
            OSError: too many open files.
            TfdistError: the system refuses more threads.
        """
        epoll = self._running_epoll()
        epoll.register(descriptor, select.EPOLLOUT if writable else select.EPOLLIN)
        self._functions[descriptor] = function  # what it has missed, epoll reports again

    def forget(self, *descriptors: int) -> None:
        """Call nothing for these any more."""
        for descriptor in descriptors:
            if self._functions.pop(descriptor, None) is not None and self._epoll is not None:
                self._epoll.unregister(descriptor)

    def _running_epoll(self) -> select.epoll:
        with self._starting:
            if self._epoll is None:
                epoll = select.epoll()
                try:
                    start_thread(lambda: self._run(epoll), "agents")
                except BaseException:
                    epoll.close()
                    raise
                self._epoll = epoll
            return self._epoll

    def _run(self, epoll: select.epoll) -> None:
        while True:
            for descriptor, _ in epoll.poll():
                with self.lock:
                    if (function := self._functions.get(descriptor)) is not None:
                        self._act(function, descriptor)

    def _act(self, function: Callable[[], None], descriptor: int) -> None:
        try:
            function()
        except Exception:  # one agent must not end the thread of all
            self.forget(descriptor)
            traceback.print_exc()


STREAMS = Streams()
"""Used by all channels of this process."""
