"""What the launcher does for each task and each message takes no longer with more tasks: no loop over all in a loop."""

import sys
import time

import pytest

from tests.launch.supervisors import FakeChannel, log_of, same_tasks
from tfdist.jobs.plan import busy_warnings
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.inbox import AgentLost, Inbox
from tfdist.launch.agents.messages import Event, Exited, Listening, NotStarted, Output, Reserve, Reserved, Started
from tfdist.launch.console.job_state import state_of
from tfdist.launch.diagnosis.outcome_lines import lines_of
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machine
from tfdist.launch.policy import Policy
from tfdist.launch.supervision.supervise import Supervisor
from tfdist.launch.supervision.task_group import TaskGroup

FEW, MANY = 25, 100


def calls(act, number):
    """Number of functions that are called while an act is done for this number of tasks."""
    counted = 0

    def note(_frame, event, _argument):
        nonlocal counted
        counted += event in ("call", "c_call")

    act(number // 5)  # once before: imports and caches
    sys.setprofile(note)
    try:
        act(number)
    finally:
        sys.setprofile(None)
    return counted


def grows_linearly(act):
    """Whether an act for four times as many tasks makes at most five times as many calls; quadratic is 16 times."""
    few, many = calls(act, FEW), calls(act, MANY)
    assert few > FEW
    return many < 5 * few


def planned(number):
    """A worker on each of this number of hosts."""
    machines = {Host(f"h{index}", f"10.0.0.{index}"): Machine((0,), (), slots=1) for index in range(number)}
    roles = {"worker": RoleShape(number, restarts=("worker",))}
    program = Program(("t.py", "{index}", "{worker_hosts}"), {}, "/", reports_steps=True)
    job = plan_job(Shape(roles, has_cluster=True), program, machines)
    assert not list(busy_warnings(job, machines))
    return job.with_ports({plan.task.name: 5000 for plan in job.plans})


def test_planning():
    assert grows_linearly(planned)


def test_requests_before_the_start():
    class Answering(FakeChannel):
        """A host that answers at once."""

        lost, alive, behind_s = False, True, 0.0

        def send(self, message):
            fleet.inbox.put(self.host, Reserved(message.ports, request=message.request), 100)

    def ask(number):
        hosts = [Host(f"h{index}") for index in range(number)]
        fleet.channels = {host: Answering(host) for host in hosts}
        fleet.hellos = {host: {} for host in hosts}
        assert len(fleet.ask({host: Reserve((5000,)) for host in hosts}, "reserve", 60.0)) == number

    fleet = Fleet(Inbox(), Policy())
    assert grows_linearly(ask)


class Played:
    """A job whose tasks were started, each on a host of its own."""

    def __init__(self, number, **policy):
        job = planned(number)
        self.names = [plan.task.name for plan in job.plans]
        self.announced = []
        self.state = state_of(job)
        channels = {plan.task.name: FakeChannel(plan.host) for plan in job.plans}
        group = TaskGroup(job, channels, Policy(**policy), announce=self.announced.append)
        self.supervisor = Supervisor(group, Inbox(), log_of(channels), same_tasks)
        group.start(group.channels)

    def each(self, message_of):
        """The message of each task arrives."""
        for name in self.names:
            message = message_of(name)
            self.supervisor.handle(message)
            assert self.supervisor.active is not None
            self.state.update(message, 0.0)

    def train(self):
        """All start, meet at the barrier and take a step."""
        self.each(lambda name: Started(name, 1, time.time()))
        self.each(lambda name: Listening(name, time.time()))
        for event in ({"event": "barrier"}, {"event": "step", "step": 1, "every": 1, "step_ms": 9.0, "own_ms": [1.0]}):
            self.each(lambda name, event=event: Event(name, time.time(), event))

    def outcome(self):
        """How it has ended."""
        assert not self.supervisor.active
        outcome = self.supervisor.restart(time.monotonic())
        list(lines_of(outcome))
        return outcome


def test_a_training_that_succeeds():
    def succeed(number):
        played = Played(number)
        played.train()
        played.each(lambda name: Exited(name, 0, time.time(), 0, 0.0))
        assert played.outcome().status == "ok"

    assert grows_linearly(succeed)


PEER = "UnavailableError: Collective ops is aborted by: Socket closed"


def test_a_failure_and_its_consequences():
    def fail(number):
        played = Played(number)
        played.train()
        played.supervisor.handle(Exited("worker-1", -9, time.time(), 0, 0.0))
        played.names.remove("worker-1")
        played.each(lambda name: Output(name, "stderr", f"{PEER}\n"))
        played.each(lambda name: Event(name, time.time(), {"event": "failed", "type": "E", "message": PEER}))
        played.supervisor.settle(time.monotonic() + 60.0)
        played.each(lambda name: Exited(name, 1, time.time(), 0, 0.0))
        for message in played.announced:
            played.state.update(message, 0.0)
        assert played.outcome().culprit == "worker-1"

    assert grows_linearly(fail)


@pytest.mark.parametrize("restarts", [0, 1])
def test_the_loss_of_all_hosts(restarts):
    def lose(number):
        played = Played(number, max_restarts=restarts)
        played.train()
        for name in played.names:
            host = played.supervisor.tasks.channels[name].host.name
            played.supervisor.handle(AgentLost(host, "its stream ended", time.time()))
        played.supervisor.settle(time.monotonic() + 60.0)
        outcome = played.supervisor.restart(time.monotonic())
        assert outcome is None if restarts else outcome.exit_code == 69
        for message in played.announced:
            played.state.update(message, 0.0)

    assert grows_linearly(lose)


def test_a_program_that_is_missing_on_all_hosts():
    def refuse(number):
        played = Played(number)
        played.each(lambda name: NotStarted(name, "no such file"))
        assert played.outcome().exit_code == 127
        (stopped,) = played.announced  # else the events would list all tasks for each
        assert len(stopped.tasks) == number - 1

    assert grows_linearly(refuse)
