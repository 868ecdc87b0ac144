"""TCP ports: reserved for tasks, and checked until tasks listen on them. Part of the agent."""

import socket


def reserve(port: int) -> socket.socket:
    """Bind `port` (0: any free one) without listening, so that no other process takes it before the task does.

    The task can bind the same port because both set SO_REUSEPORT (gRPC does with TF_GRPC_REUSE_PORT=true).
    A fixed port is first bound without SO_REUSEPORT, to detect another job that has reserved it.

    Raises:
        OSError: the port is in use, or binding it is not permitted.
    """
    if port:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections in TIME_WAIT
            probe.bind(("", port))
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("", port))
    return reserved


def listening_ports() -> set[int]:
    """The TCP ports that any process of this host listens on."""
    ports = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as lines:
                next(lines)
                for line in lines:
                    _, local, _, state, *_ = line.split(None, 4)
                    if state != "0A":  # listening sockets come first; reading all others could take long
                        break
                    ports.add(int(local.rpartition(":")[2], 16))
        except (OSError, StopIteration):  # no IPv6
            continue
    return ports
