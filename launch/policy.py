"""Timeouts of a launch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """All values are seconds."""

    timeout_s: float | None = None
    """Limit of the whole job, from the start of its tasks; None: no limit."""
    grace_s: float = 5.0
    """Between SIGTERM and SIGKILL."""
    lost_grace_s: float = 2.0
    """Upper limit of `grace_s` once a host is lost; keeps `silence_s`, this and the agent's clean-up under 15 s."""
    settle_s: float = 3.0
    """After the first failure, before the other tasks are stopped; those that exit meanwhile help to find the cause."""
    hello_s: float = 14.0
    """For an agent's hello, and for each of its answers before tasks start."""
    dial_s: float = 4.0
    """For a connection to a peer's port before tasks start."""
    heartbeat_s: float = 2.0
    """Between two heartbeats."""
    silence_s: float = 10.0
    """Without a message from an agent, until it counts as lost."""
