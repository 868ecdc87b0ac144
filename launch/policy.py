"""Limits of a launch, and when its tasks are restarted."""

import signal
from dataclasses import dataclass

from tfdist.launch.str_enum import StrEnum

START_TIMEOUT_S = 60.0
"""The default of `start_timeout_s`."""
LOG_LIMIT = 10 << 30
"""The default of `log_limit`: a year of a line per second is 3 GiB, and a loop that prints writes 10 GiB in minutes."""
CLEAN_UP_S = 5.0
"""Part of `kill_wait_s` for the end of the tasks and of the launcher."""


class RestartOn(StrEnum):
    """What tasks are restarted after."""

    FAILURE = "failure"
    """Any end but exit code 42."""
    PREEMPTION = "preemption"
    """Exit code 42, which means "restart me" (TensorFlow's PreemptionCheckpointHandler)."""
    ANY = "any"


@dataclass(frozen=True)
class Policy:
    """Times are seconds."""

    timeout_s: float | None = None
    """Limit of the whole job, from the start of its tasks; None: no limit."""
    start_timeout_s: float = START_TIMEOUT_S
    """Limit of the description of all hosts, of each answer before tasks start, and of the start of all tasks."""
    grace_s: float = 5.0
    """Time between SIGTERM and SIGKILL."""
    lost_grace_s: float = 2.0
    """Upper limit of `grace_s` once a host is lost: the job has failed, and peers of the lost tasks only wait."""
    restart_grace_s: float = 2.0
    """Upper limit of `grace_s` after a failure if tasks may be restarted: what they save then is of no use."""
    settle_s: float = 3.0
    """Time from the first failure until the others are stopped; those that exit meanwhile help to find the cause."""
    settle_killed_s: float = 0.5
    """The same if it was killed from outside, which no other failure causes; other tasks may be killed with it."""
    settle_restart_s: float = 1.0
    """Upper limit of `settle_s` if tasks may be restarted."""
    settle_secondary_s: float = 12.0
    """The same while every failed task reports only that a peer has failed. TensorFlow takes 8 to 10 s to notice that a
    peer is silent, and an agent counts as lost after `silence_s`."""
    alive_s: float = 14.0
    """Limit of the login on a host with the default `start_timeout_s`."""
    dial_s: float = 4.0
    """Limit of a connection to a peer's port before tasks start."""
    heartbeat_s: float = 2.0
    """Time between two heartbeats."""
    rejoin_s: float = 30.0
    """Time between two connections to a host that was lost, or is new, while the job runs on others."""
    silence_s: float = 10.0
    """Time without a message from an agent on another host, until it counts as lost."""
    launcher_timeout_s: float = 60.0
    """Time without a message from the launcher, until an agent on another host stops its tasks."""
    kill_wait_s: float = 0.0
    """Time between the SIGTERM that a scheduler sends to all processes of a job, and its SIGKILL; 0: there is no
    scheduler, or it sends signals to the launcher alone."""

    max_restarts: int = 0
    """Number of restarts of the whole run, whichever tasks they restart."""
    restart_on: RestartOn = RestartOn.ANY
    min_workers: int | None = None
    """Restart with fewer workers, at least this many, if hosts are lost; None: all hosts are needed."""
    saves_on_signal: bool = False
    """SIGTERM, SIGUSR1 and SIGUSR2 go to one leading task first, whose job then saves a checkpoint and ends with 42."""
    save_s: float = 25.0
    """Time for that checkpoint, if `grace_s` is shorter and there is no `kill_wait_s`. Kubernetes sends SIGKILL 30 s
    after SIGTERM by default."""
    stall_timeout_s: float | None = 300.0
    """Time without a step from any task, until the job is stopped; None: no limit."""
    inspect_s: float | None = None
    """Interval of inspections of all processes, for figures about them; None: as often as the supervision needs it."""
    stop_on_nan: bool = False
    """Stop the job when a task reports a loss that is not finite."""
    log_limit: int = LOG_LIMIT
    """Bytes of each stream of an attempt of a task, and of the events; what follows is left out."""

    @property
    def failure_settle_s(self) -> float:
        """`settle_s`, or less if tasks may be restarted."""
        return min(self.settle_s, self.settle_restart_s) if self.max_restarts else self.settle_s

    @property
    def failure_grace_s(self) -> float:
        """Grace period after a failure."""
        return min(self.grace_s, self.restart_grace_s) if self.max_restarts else self.grace_s

    def stop_grace_s(self, number: int) -> float:
        """Time between SIGTERM and SIGKILL for the tasks, after the launcher has received the signal `number`."""
        return min(self.grace_s, self._limit_s(number) or self.grace_s)

    def save_grace_s(self, number: int) -> float:
        """The same if the tasks save a checkpoint: after a scheduler's SIGTERM, all of the time that it leaves."""
        return self._limit_s(number) or max(self.grace_s, self.save_s)

    def _limit_s(self, number: int) -> float | None:
        """The time that a scheduler leaves; None: it sets no limit."""
        limited = self.kill_wait_s and number == signal.SIGTERM
        return max(1.0, self.kill_wait_s - CLEAN_UP_S) if limited else None

    @property
    def login_s(self) -> float:
        """Limit of the login on a host: `alive_s`, more with a longer `start_timeout_s`, and at most that."""
        return min(self.start_timeout_s, self.alive_s * max(1.0, self.start_timeout_s / START_TIMEOUT_S))
