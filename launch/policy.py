"""Timeouts of a launch."""

from dataclasses import dataclass

START_TIMEOUT_S = 60.0
"""The default of `start_timeout_s`."""


@dataclass(frozen=True)
class Policy:
    """All values are seconds."""

    timeout_s: float | None = None
    """Limit of the whole job, from the start of its tasks; None: no limit."""
    start_timeout_s: float = START_TIMEOUT_S
    """For all hosts to describe themselves, for each answer before tasks start, and for all tasks to be started."""
    grace_s: float = 5.0
    """Between SIGTERM and SIGKILL."""
    lost_grace_s: float = 2.0
    """Upper limit of `grace_s` once a host is lost: the job has failed, and peers of the lost tasks only wait."""
    settle_s: float = 3.0
    """After the first failure, before the other tasks are stopped; those that exit meanwhile help to find the cause."""
    settle_secondary_s: float = 12.0
    """The same while every failed task reports only that a peer has failed. TensorFlow takes 8 to 10 s to notice that a
    peer is silent, and an agent counts as lost after `silence_s`."""
    alive_s: float = 14.0
    """For the login on a host with the default `start_timeout_s`."""
    dial_s: float = 4.0
    """For a connection to a peer's port before tasks start."""
    heartbeat_s: float = 2.0
    """Between two heartbeats."""
    silence_s: float = 10.0
    """Without a message from an agent on another host, until it counts as lost."""
    launcher_timeout_s: float = 60.0
    """Without a message from the launcher, until an agent on another host stops its tasks."""

    @property
    def login_s(self) -> float:
        """For the login on a host: `alive_s`, more with a longer `start_timeout_s`, and at most that."""
        return min(self.start_timeout_s, self.alive_s * max(1.0, self.start_timeout_s / START_TIMEOUT_S))
