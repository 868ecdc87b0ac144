"""The program of a template: it imports what tasks import, then forks an agent for each request. Part of the agent."""

import json
import os
import signal
import socket

from tfdist.launch.agent_program import agent
from tfdist.launch.agent_program.template import preload

MOST_VARIABLES = 1 << 20
"""Bytes of the first message to a template; a socket takes less."""


def main() -> None:
    """Import what the `preload` of a module imports, then serve until the launcher closes the socket, which is stdin.

    The first message is JSON: the module, and variables that get other values after the import (null: none).
    """
    requests = socket.socket(fileno=os.dup(0))
    preload(*json.loads(requests.recv(MOST_VARIABLES)))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    while True:
        request, descriptors, *_ = socket.recv_fds(requests, 1, 4)
        if not request:
            os._exit(0)
        if os.fork() == 0:
            _run_agent(requests, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _run_agent(requests: socket.socket, descriptors: list[int]) -> None:
    """Run an agent with these standard streams; the last descriptor gets its pid, and stays open as long as it runs."""
    os.setsid()
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, alive = descriptors
    for target, source in enumerate(streams):
        os.dup2(source, target)
        os.close(source)
    os.set_inheritable(alive, False)
    os.write(alive, b"%d\n" % os.getpid())
    agent.main()
