"""Supervisors whose channels only record what is sent."""

import time

from tfdist.launch.agents.inbox import Inbox
from tfdist.launch.agents.messages import Exited, Start, Stop
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.machine import Machine, local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.supervision.attempts import AttemptLog
from tfdist.launch.supervision.supervise import Supervisor
from tfdist.launch.supervision.task_group import TaskGroup

from .jobs import roles


def same_tasks(tasks, saved):
    """The next attempt of the same job on the same agents."""
    return tasks.again(tasks.job, tasks.channels), ""


class FakeChannel:
    """Records what is sent to an agent, which has tfdist."""

    has_package = True

    def __init__(self, host=LOCAL):
        self.host, self.last_received, self.sent, self.silent = host, time.monotonic(), [], False

    def send(self, message):
        self.sent.append(message)

    def stops(self):
        return [message for message in self.sent if isinstance(message, Stop)]

    def starts(self):
        return [(message.task, message.attempt) for message in self.sent if isinstance(message, Start)]


def supervisor_of(counts, *, ports=False, next_tasks=same_tasks, **policy):
    """A supervisor of tasks that run, and the channel to the host of all of them."""
    job = plan_job(Shape(roles(**counts), True), Program(("true",), {}, "/"), local_machines(Machine((0,), ())))
    job = job.with_ports({plan.task.name: 5000 + at for at, plan in enumerate(job.plans)}) if ports else job
    channel = FakeChannel()
    group = running_tasks(job, channel, Policy(**policy))
    return Supervisor(group, Inbox(), log_of(group.channels), next_tasks), channel


def running_tasks(job, channel, policy, announce=lambda _: None):
    """The tasks of a job after the request to start them, which is no longer among what the channel was sent."""
    group = TaskGroup(job, dict.fromkeys((plan.task.name for plan in job.plans), channel), policy, announce=announce)
    group.start(group.channels)
    channel.sent.clear()
    return group


def log_of(tasks):
    """The first attempt has started."""
    log = AttemptLog()
    log.open(tasks, time.time())
    return log


def exited(task, code):
    return Exited(task, code, time.time(), 0, 0.0)
