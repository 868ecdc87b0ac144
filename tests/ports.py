"""Ports for the servers of tests."""

import random
from contextlib import ExitStack, closing, suppress

from tfdist.launch.agent_program.system import reserve


def free_ports(count: int) -> list[int]:
    """Free ports on this machine, which the kernel gives to nobody else: they are below its own (32768)."""
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            port = random.randrange(20000, 32000)
            with suppress(OSError):
                stack.enter_context(closing(reserve(port)))
                found.append(port)
        return found
