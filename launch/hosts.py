"""Where tasks can be."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    """One host of a job."""

    name: str
    """As the user calls it."""
    address: str
    """Where the other hosts' tasks reach its tasks."""
    local: bool = False
    """It is this machine: its agent is started without a prefix."""


LOCAL = Host("localhost", "127.0.0.1", local=True)
