"""Ports for the servers of tests."""

import os
import random
import socket
from contextlib import ExitStack, closing, suppress

from tfdist.launch.agent_program.optional import SO_REUSEPORT
from tfdist.launch.agent_program.system import reserve

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
_PORTS = range(20000 + 1500 * _WORKER, 20000 + 1500 * (_WORKER + 1))
"""Those of this process of pytest-xdist: a port that is not bound yet, or with SO_REUSEPORT, looks free to others."""


def free_ports(count: int) -> list[int]:
    """Free ports on this machine, which the kernel gives to nobody else: they are below its own (32768)."""
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            port = random.choice(_PORTS)
            with suppress(OSError):
                stack.enter_context(closing(reserve(port)))
                found.append(port)
        return found


def serve_reserved(port: int) -> socket.socket:
    """Listen on a port that is reserved, as TensorFlow does; socket.create_server cannot on every Python."""
    server = socket.socket()
    for option in (socket.SO_REUSEADDR, SO_REUSEPORT):
        server.setsockopt(socket.SOL_SOCKET, option, 1)
    server.bind(("", port))
    server.listen()
    return server
