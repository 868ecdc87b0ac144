"""Probes of the links between hosts, before any task runs: agents listen on the reserved ports and dial each other.

The client sends the first half of the token of the launch, and the server answers with the other half, so that neither
takes another program for its peer. Then the client may request echoes, or send data that the server counts. Part of the
agent.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from tfdist.launch.agent_program.optional import SO_REUSEPORT

ECHO, COUNT = b"e", b"c"
CHUNK = 1 << 18
MAX_THREADS = 64
"""Parallel connections, so that many unreachable peers cost one timeout."""
MOST_CONNECTIONS = 256
"""Threads of a server; further connections wait until one has ended."""
TOKEN_S = 5.0
"""Time limit of a client to send its half of the token."""
IDLE_S = 10.0
PINGS = 9
STALL_S = 6.0
"""A link is cut if it transmits no chunk in this time."""
DRAIN_S = 20.0
"""Time for up to 4 MiB in the socket buffers, on a slow link."""


class ProbeServer:
    """Answers probes on these ports in background threads until it is closed."""

    def __init__(self, ports: Sequence[int], token: str) -> None:
        """Listen on the ports, which other sockets keep reserved.

        Raises:
            OSError: a port is in use by another program; `filename` is its number.
        """
        self._halves = _halves(token)
        self._closing = False
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._servers: list[socket.socket] = []
        for port in ports:
            try:
                self._servers.append(listen(port))
            except OSError as error:
                self.close()
                raise OSError(error.errno, error.strerror, port) from None
        for server in self._servers:
            threading.Thread(target=self._serve, args=(server,), name="probe", daemon=True).start()

    def close(self) -> None:
        """Stop listening. The ports stay reserved."""
        self._closing = True
        for server in self._servers:
            server.shutdown(socket.SHUT_RDWR)  # makes a blocked accept() return
            server.close()

    def _serve(self, server: socket.socket) -> None:
        while not self._closing:
            if not self._free.acquire(timeout=0.1):
                continue
            try:
                connection, _ = server.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
            except (OSError, RuntimeError):  # closed, or no descriptor or thread is left
                self._free.release()
                time.sleep(0.05)

    def _answer(self, connection: socket.socket) -> None:
        first, second = self._halves
        try:
            with connection, contextlib.suppress(OSError):
                if _receive(connection, len(first), time.monotonic() + TOKEN_S) != first:
                    return
                connection.settimeout(IDLE_S)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(second)
                while (request := connection.recv(1)) == ECHO:
                    connection.sendall(ECHO)
                if request == COUNT:
                    buffer = bytearray(CHUNK)
                    total = 0
                    while count := connection.recv_into(buffer):
                        total += count
                    connection.sendall(b"%d\n" % total)
        finally:
            self._free.release()


def listen(port: int) -> socket.socket:
    """A socket that listens like TensorFlow's servers: on all IPv4 and IPv6 addresses, with SO_REUSEPORT.

    Raises:
        OSError: the port is in use by another program.
    """
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    server = socket.socket(family)  # socket.create_server may refuse reuse_port
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, SO_REUSEPORT, 1)
        if both:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("", port))
        server.listen(512)
    except OSError:
        server.close()
        raise
    return server


def _halves(token: str) -> tuple[bytes, bytes]:
    return token[: len(token) // 2].encode(), token[len(token) // 2 :].encode()


def _receive(connection: socket.socket, size: int, until: float) -> bytes:
    """That many bytes, or fewer if the other side closes before.

    Raises:
        TimeoutError: they did not come until then.
    """
    data = b""
    while len(data) < size:
        connection.settimeout(max(0.001, until - time.monotonic()))
        if not (chunk := connection.recv(size - len(data))):
            break
        data += chunk
    return data


def _connect(address: str, port: int, token: str, timeout_s: float) -> socket.socket:
    connection = socket.create_connection((address, port), timeout=timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first, second = _halves(token)
        connection.sendall(first)
        if _receive(connection, len(second), time.monotonic() + timeout_s) != second:
            raise ConnectionResetError
        connection.settimeout(timeout_s)
    except OSError as error:
        connection.close()
        if isinstance(error, ConnectionResetError | BrokenPipeError):
            raise OSError("something else answers there") from None
        raise
    return connection


def connection_failure(error: Exception) -> str:
    """Why a connection failed: `refused`, `timed out`, `not resolved`, `something else answers there`, or the system's
    message."""
    match error:
        case ConnectionRefusedError():
            return "refused"
        case TimeoutError():
            return "timed out"
        case socket.gaierror():
            return "not resolved"
        case OSError():
            return error.strerror or str(error)
        case UnicodeError() if not isinstance(error, UnicodeDecodeError):  # not a valid DNS name
            return "not resolved"
    return "something else answers there"


def dial(address: str, port: int, token: str, timeout_s: float) -> str:
    """Why a peer's probe server cannot be reached, as `connection_failure`; empty if it can."""
    try:
        _connect(address, port, token, timeout_s).close()
    except (OSError, UnicodeError) as error:
        return connection_failure(error)
    return ""


def dial_all(targets: Sequence[tuple[str, int]], token: str, timeout_s: float) -> list[str]:
    """`dial` for each (address, port), in parallel; the results in the order of `targets`."""
    from concurrent.futures import ThreadPoolExecutor  # takes 25 ms, and only jobs on several hosts need it

    with ThreadPoolExecutor(MAX_THREADS) as pool:
        return list(pool.map(lambda target: dial(target[0], target[1], token, timeout_s), targets))


def measure_link(address: str, port: int, token: str, seconds: float) -> dict[str, Any]:
    """Round-trip time in seconds and throughput in bytes per second to a peer's probe server, over one TCP connection.

    The time is the median of a few one-byte echoes. The throughput counts TCP payload that is sent for `seconds`,
    over the time until the peer has received all of it.

    Returns:
        The values of a `LinkSpeed` message: zeros and a reason if the measurement failed.
    """
    round_trips = []
    try:
        with _connect(address, port, token, 5.0) as connection:
            connection.settimeout(STALL_S)
            for _ in range(PINGS):
                start = time.perf_counter()
                connection.sendall(ECHO)
                connection.recv(1)
                round_trips.append(time.perf_counter() - start)
            connection.sendall(COUNT)
            data = bytes(CHUNK)
            start = time.perf_counter()
            while time.perf_counter() - start < seconds:
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(DRAIN_S)
            total = int(connection.makefile("rb").readline() or b"0")
            bytes_per_s = total / (time.perf_counter() - start)
    except (OSError, ValueError) as error:
        return {"rtt_s": 0.0, "bytes_per_s": 0.0, "reason": str(error) or type(error).__name__}
    return {"rtt_s": sorted(round_trips)[PINGS // 2], "bytes_per_s": bytes_per_s, "reason": ""}
