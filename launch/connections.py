"""Serves the connections of a listening socket: few at a time, and each for seconds. Anybody may connect."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from tfdist.launch.errors import TfdistError
from tfdist.launch.threads import start_thread

MOST = 8
"""Connections at a time. With one more, the oldest is closed: idle ones take neither descriptors nor turns."""
SECONDS = 5.0
"""Time for a connection, from its start to its end."""
FINISH_S = 0.5
"""Time for the last answers at the end."""
RETRY_S = 0.1
"""Pause after a connection that could not be accepted: there is no descriptor, memory or thread for it now."""


@contextmanager
def answered(listener: socket.socket, answer: Callable[[socket.socket], object], name: str) -> Iterator[None]:
    """Call `answer` with each connection, in a thread of its own, until the context ends; then close the listener.

    Whatever a client makes `answer` raise ends this connection only.

    Args:
        listener: listens.
        answer: reads a request and writes the answer; it gets an OSError, or the end of the stream, after `SECONDS`.
        name: of the thread that accepts them.

    Raises:
        TfdistError: no thread can be started.
    """
    server = _Server(listener, answer, name)
    thread = start_thread(server.accept_all, name)
    try:
        yield
    finally:
        server.closing = True
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # ends accept()
        thread.join()
        listener.close()
        server.finish()
        server.close_oldest(keep=0)


class _Server:
    def __init__(self, listener: socket.socket, answer: Callable[[socket.socket], object], name: str) -> None:
        self.closing = False
        self._listener, self._answer, self._name = listener, answer, name
        self._open: list[socket.socket] = []
        """The oldest first."""
        self._changed = threading.Condition()

    def accept_all(self) -> None:
        while not self.closing:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed, or no descriptor is left
                if not self.closing:
                    time.sleep(RETRY_S)
                continue
            self.close_oldest(keep=MOST - 1)
            with self._changed:
                self._open.append(client)
            try:
                start_thread(partial(self._serve, client), f"{self._name} client")
            except TfdistError:  # no thread is left
                self._end(client)
                time.sleep(RETRY_S)

    def finish(self) -> None:
        """Let what is being answered be answered, if it takes no longer than FINISH_S."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout=FINISH_S)

    def close_oldest(self, keep: int) -> None:
        """End all connections but the newest ones, and wait until they are closed."""
        with self._changed:
            for client in self._open[: max(0, len(self._open) - keep)]:
                self._cut(client)
            self._changed.wait_for(lambda: len(self._open) <= keep, timeout=SECONDS)

    def _serve(self, client: socket.socket) -> None:
        limit = threading.Timer(SECONDS, self._cut, (client,))
        limit.daemon = True
        try:
            limit.start()
            self._answer(client)
        except Exception:  # of what a client has sent; it sees the end of the connection
            pass
        finally:
            limit.cancel()
            self._end(client)

    def _cut(self, client: socket.socket) -> None:
        """End a connection that another thread uses: it gets the end of the stream, or an error."""
        with self._changed, suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _end(self, client: socket.socket) -> None:
        with self._changed:
            client.close()
            self._open.remove(client)
            self._changed.notify_all()
