"""Can hosts really reach each other: an agent listens on its tasks' ports and dials its peers' before any task runs.

Runs inside agents, on every host: standard library only, and little of it, for each module that is imported delays
every agent (concurrent.futures and statistics would take 25 ms of a core). A connection is greeted with the job's
token, so that whatever else answers at an address is told apart; then the dialler may ask for echoes, or send data to
be counted.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

ECHO, COUNT = b"e", b"c"
CHUNK = 1 << 18
AT_ONCE = 64
"""So that peers that do not answer take one timeout, not several."""
PINGS = 9
STUCK_S = 6.0
"""A way that takes not one chunk in this time is cut."""
DRAIN_S = 20.0
"""For what the buffers still hold: up to 4 MiB, on a slow way."""


class ProbeServer:
    """Answers on these ports until it is closed, from threads of its own."""

    def __init__(self, ports: Sequence[int], token: str) -> None:
        """Listen beside the sockets that hold the ports.

        Raises:
            OSError: one cannot be listened at.
        """
        self._token = token.encode()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        try:
            for port in ports:
                self._selector.register(_listen(port), selectors.EVENT_READ)
        except OSError:
            self._close_sockets()
            raise
        self._thread = threading.Thread(target=self._serve, name="probe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; the ports stay held by whoever holds them."""
        self._wake.close()
        self._thread.join()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                with contextlib.suppress(OSError):
                    connection, _ = key.fileobj.accept()  # type: ignore[union-attr]
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(10.0)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(self._token)
            while (wish := connection.recv(1)) == ECHO:
                connection.sendall(ECHO)
            if wish == COUNT:
                buffer, total = bytearray(CHUNK), 0
                while count := connection.recv_into(buffer):
                    total += count
                connection.sendall(b"%d\n" % total)


def _listen(port: int) -> socket.socket:
    """As TensorFlow's servers do: on all addresses, those of IPv6 too where there are any, beside who holds the port.

    Raises:
        OSError: it cannot be listened at.
    """
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=512, reuse_port=True, dualstack_ipv6=both)


def _call(address: str, port: int, token: str, timeout_s: float) -> socket.socket:
    """A connection to a peer's listener, which has shown the token.

    Raises:
        OSError: there is none.
    """
    connection = socket.create_connection((address, port), timeout=timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wanted, got = token.encode(), b""
        while len(got) < len(wanted) and (more := connection.recv(len(wanted) - len(got))):
            got += more
        if got != wanted:
            raise OSError("something else answers there")
    except OSError:
        connection.close()
        raise
    return connection


def dial(address: str, port: int, token: str, timeout_s: float) -> str:
    """Why a peer's listener cannot be reached: `refused`, `timed out`, `not resolved` or other words; else empty."""
    try:
        _call(address, port, token, timeout_s).close()
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return "timed out"
    except (socket.gaierror, UnicodeError):
        return "not resolved"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def dial_all(targets: Sequence[tuple[str, int]], token: str, timeout_s: float) -> list[str]:
    """`dial` for each (address, port), several at once."""
    found = [""] * len(targets)
    left = deque(enumerate(targets))

    def run() -> None:
        with contextlib.suppress(IndexError):  # none is left
            while True:
                place, (address, port) = left.popleft()
                found[place] = dial(address, port, token, timeout_s)

    threads = [threading.Thread(target=run, daemon=True) for _ in targets[:AT_ONCE]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def measure(address: str, port: int, token: str, seconds: float) -> tuple[float, float]:
    """Round-trip time in seconds and bytes a second, between this host and a peer's listener.

    The median of a few echoes of one byte; then as many bytes as go out in `seconds`, over the time until the peer has
    counted the last of them. One TCP stream, TCP's own payload.

    Raises:
        OSError: the connection cannot be made, or breaks.
    """
    with _call(address, port, token, 5.0) as connection:
        connection.settimeout(STUCK_S)
        trips = []
        for _ in range(PINGS):
            began = time.perf_counter()
            connection.sendall(ECHO)
            connection.recv(1)
            trips.append(time.perf_counter() - began)
        connection.sendall(COUNT)
        data, began = bytes(CHUNK), time.perf_counter()
        while time.perf_counter() - began < seconds:
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(DRAIN_S)
        total = int(connection.makefile("rb").readline() or b"0")
        return sorted(trips)[PINGS // 2], total / (time.perf_counter() - began)


def measured(address: str, port: int, token: str, seconds: float) -> dict[str, Any]:
    """`measure` as a message, with the reason if it was not possible."""
    try:
        rtt_s, bytes_per_s = measure(address, port, token, seconds)
    except (OSError, ValueError) as error:
        return {"rtt_s": 0.0, "bytes_per_s": 0.0, "reason": str(error) or type(error).__name__}
    return {"rtt_s": rtt_s, "bytes_per_s": bytes_per_s, "reason": ""}
