"""How patient a launch is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """Seconds, all of them."""

    timeout_s: float | None = None
    """For the whole job, from the first task's start; None: as long as it takes."""
    grace_s: float = 5.0
    """Between SIGTERM and SIGKILL."""
    lost_grace_s: float = 2.0
    """As grace_s at most, after a host was lost: with silence_s before it and an agent's clean-up after it, 15 s."""
    settle_s: float = 3.0
    """After the first failure, for the others to die by themselves, so that it can be told who was first."""
    hello_s: float = 14.0
    """For an agent to say hello, and for each of its answers before tasks start."""
    dial_s: float = 4.0
    """For a peer's port to answer before tasks start."""
    heartbeat_s: float = 2.0
    silence_s: float = 10.0
    """An agent that has said nothing for so long is lost."""
