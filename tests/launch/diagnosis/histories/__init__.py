"""Histories of jobs, each with the outcome that it must have. Times are seconds after the start of the job."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.launch.jobs import python_job
from tfdist.launch.agents.inbox import AgentLost, Interrupted, Message, Stopped
from tfdist.launch.agents.messages import Event, Exited, NotStarted, Output, Stuck
from tfdist.launch.diagnosis.history import Entry, History, ProcessState
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job

START = 1_800_000_000.0

Happened = tuple[float, Message | Entry] | tuple[str, ProcessState]
"""A message and its arrival, or an entry of the launcher, or the state of a task's process."""


@dataclass(frozen=True)
class Replay:
    """A history and its outcome."""

    name: str
    happened: tuple[Happened, ...]
    reason: str
    code: int
    culprits: tuple[str, ...] = ()
    casualties: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, int] = field(default_factory=lambda: {"worker": 2})
    hosts: Mapping[str, str] = field(default_factory=dict)
    """By task; empty: all on this machine."""
    status: str = "failed"

    def history(self) -> History:
        """Everything that happened, in the order of its arrival."""
        history = History()
        for first, second in self.happened:
            if isinstance(second, ProcessState):
                history.states[str(first)] = second
            elif isinstance(second, Output | Event):
                history.add(second, START + float(first))
            else:
                history.entries.append(second)
        return history

    def job(self) -> Job:
        """Its tasks."""
        job = python_job("", dict(self.roles))
        if not self.hosts:
            return job
        plans = (replace(plan, host=Host(self.hosts[plan.task.name])) for plan in job.plans)
        return replace(job, plans=tuple(plans))


def wrote(task: str, text: str, at: float, stream: str = "stderr") -> Happened:
    """A task wrote lines."""
    return at, Output(task, stream, text if text.endswith("\n") else text + "\n")


def exited(task: str, code: int, at: float, arrives: float | None = None, **memory: int | str) -> Happened:
    """A task exited."""
    return arrives or at, Exited(task, code, START + at, 1, 0.1, **memory)


def reported(task: str, kind: str, message: str, at: float, causes: str = "") -> Happened:
    """A task sent the event `failed`."""
    event = {"event": "failed", "type": kind, "message": message, "where": "train.py:7", "causes": causes}
    return at, Event(task, START + at, event)


def stepped(task: str, step: int, at: float) -> Happened:
    """A task sent the event `step`."""
    return at, Event(task, START + at, {"event": "step", "step": step})


def stopped(at: float, *tasks: str, grace_s: float = 5.0) -> Happened:
    """The launcher stopped these tasks."""
    return at, Stopped(tasks, grace_s, START + at)


def lost(host: str, at: float, reason: str = "no message for 10 s") -> Happened:
    """The last message of an agent came."""
    return at, AgentLost(host, reason, START + at)


def interrupted(at: float, number: int = signal.SIGINT) -> Happened:
    """The launcher received a signal."""
    return at, Interrupted(number)


def not_started(task: str, reason: str) -> Happened:
    """A program could not be started."""
    return 0.1, NotStarted(task, reason)


def stuck(task: str, at: float, state: str = "D", wait: str = "rpc_wait_bit_killable") -> Happened:
    """A task did not end after SIGKILL."""
    return at, Stuck(task, START + at, state, wait)


def state(task: str, letter: str, wait: str = "") -> Happened:
    """What the agent said of a running task."""
    return task, ProcessState(letter, wait)
