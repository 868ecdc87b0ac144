"""Any order of valid messages, of any task and attempt, neither breaks a supervisor nor keeps it from its end."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.launch.supervisors import same_tasks
from tfdist.launch.agents.inbox import AgentLost, Arrival, HostReady, Inbox, Interrupted, NextTurn, Note
from tfdist.launch.agents.messages import (
    DumpStacks,
    Event,
    Exited,
    FolderChecked,
    Heartbeat,
    Inspect,
    Inspected,
    Leaving,
    Listening,
    NotStarted,
    Output,
    Reserved,
    StacksDumped,
    Start,
    Started,
    Stop,
    Stuck,
    Terminated,
)
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machine
from tfdist.launch.policy import Policy
from tfdist.launch.supervision.attempts import AttemptLog
from tfdist.launch.supervision.supervise import Supervisor
from tfdist.launch.supervision.task_group import TaskGroup

HOSTS = (Host("h1"), Host("h2"))
ROLES = {
    "multiworker": {"worker": RoleShape(2, restarts=("worker",))},
    "parameter-server": {
        "chief": RoleShape(1, computes=False, restarts=()),
        "worker": RoleShape(2, leads=False, serves=True, restarts=()),
        "ps": RoleShape(1, computes=False, leads=False, serves=True, restarts=("chief", "ps")),
        "evaluator": RoleShape(1, computes=False, leads=False, restarts=(), follows=True),
    },
    "independent": {"worker": RoleShape(2)},
}
MOST_STEPS = 3000
"""Of a second, for a job to end once its tasks do. It may wait for restarts (1, 2, 4, ... s) and followers."""


def events():
    numbers = st.integers(-1, 9) | st.floats() | st.none() | st.text(max_size=3)
    names = st.sampled_from(
        ("step", "phase", "ready", "barrier", "turn", "record", "failed", "checkpoint", "resumed", "stacks", "x")
    )
    keys = st.sampled_from(("step", "steps", "loss", "phase", "record", "message", "type", "signal", "pid", "windows"))
    values = numbers | st.dictionaries(st.text(max_size=3), numbers, max_size=2) | st.lists(numbers, max_size=2)
    return st.builds(lambda name, rest: {**rest, "event": name}, names, st.dictionaries(keys, values, max_size=3))


def messages(tasks):
    """Messages about these tasks, of hosts, and of the launcher itself."""
    task, attempt, code = (
        st.sampled_from([*tasks, "worker-9"]),
        st.integers(0, 3),
        st.sampled_from((0, 1, 2, 42, 137, -9, -15)),
    )
    at = st.floats(1e9, 3e9)
    text = st.sampled_from(
        ("Traceback (most recent call last):\n", "ValueError: x\n", "x", "Socket closed\n", "\n", "é\r")
    )
    of_task = st.one_of(
        st.builds(Started, task, st.just(1), at, attempt=attempt),
        st.builds(NotStarted, task, st.just("x"), attempt=attempt),
        st.builds(Listening, task, at, attempt=attempt),
        st.builds(Output, task, st.sampled_from(("stdout", "stderr", "stacks")), text, attempt=attempt),
        st.builds(Event, task, at, events(), attempt=attempt),
        st.builds(Exited, task, code, at, st.just(1), st.just(0.1), attempt=attempt),
        st.builds(Stuck, task, at, st.just("D"), st.just(""), attempt=attempt),
    )
    request = st.integers(0, 30)
    states = st.dictionaries(task, st.sampled_from(("R", "S", "T", "D", "t")), max_size=3)
    of_host = st.one_of(
        st.builds(lambda states, request: Inspected(states, {}, {}, request=request), states, request),
        st.builds(lambda request: StacksDumped({}, request=request), request),
        st.builds(lambda request: FolderChecked("", request=request), request),
        st.builds(lambda request: Reserved((), request=request), request),
        st.builds(Heartbeat, at),
        st.just(Leaving("x")),
        st.just(Terminated()),
        st.builds(AgentLost, st.sampled_from(("h1", "h2", "h9")), st.just("x"), at),
        st.builds(HostReady, st.sampled_from(("h1", "h9"))),
    )
    of_launcher = st.sampled_from((Interrupted(15), Interrupted(10), Interrupted(2), NextTurn(None), Note("", "x")))
    host = st.sampled_from(HOSTS)
    return st.tuples(host, of_task) | st.tuples(host, of_host) | st.tuples(st.none(), of_launcher)


class Agent:
    """Starts and stops tasks on request; as a channel of the supervisor, and as the host."""

    def __init__(self, host):
        self.host, self.last_received, self.silent = host, math.inf, False
        self.replies, self.alive = [], {}

    def send(self, message):
        match message:
            case Start(task, attempt=attempt):
                self.alive[task] = attempt
                self.replies.append(Started(task, 1, time.time(), attempt=attempt))
            case Stop(tasks):
                self.replies += [self.end(task, -15) for task in tasks if task in self.alive]
            case Inspect(request=request):
                self.replies.append(Inspected({}, {}, request=request))
            case DumpStacks(tasks, request=request):
                self.replies.append(StacksDumped(dict.fromkeys(tasks, "/proc"), request=request))

    def end(self, task, code):
        return Exited(task, code, time.time(), 1, 0.1, attempt=self.alive.pop(task))


class Simulation:
    """A supervisor and its agents. `now` is the monotonic time that they have; it passes faster than ours."""

    def __init__(self, roles, policy):
        job = plan_job(
            Shape(roles, True), Program(("true",), {}, "/"), dict.fromkeys(HOSTS, Machine((0,), (), slots=1))
        )
        self.job = job.with_ports({plan.task.name: 5000 + at for at, plan in enumerate(job.plans)})
        self.policy, self.now = policy, time.monotonic()
        self.agents = {host: Agent(host) for host in HOSTS}
        channels = {plan.task.name: self.agents[plan.host] for plan in job.plans}
        group = TaskGroup(self.job, channels, policy)
        self.supervisor = Supervisor(group, Inbox(), AttemptLog(), same_tasks)
        self.supervisor.start(self.now)

    def pass_time(self, seconds):
        """Let the time pass, and the agents answer."""
        self.now += seconds
        self.supervisor.deadlines.run_due(self.now)
        for host, agent in self.agents.items():
            replies, agent.replies = agent.replies, []
            for reply in replies:
                self.deliver(host, reply)

    def deliver(self, host, message):
        arrival = Arrival(host, message, self.now, 0)
        if self.supervisor.accepts(arrival):
            self.supervisor.tasks.requests.take(host, message)
            self.supervisor.handle(message, self.now)

    def end(self):
        """Let all tasks end; returns whether the supervisor has noticed."""
        for _ in range(MOST_STEPS):
            if not self.supervisor.active:
                return True
            for agent in self.agents.values():
                agent.replies += [agent.end(task, 0) for task in list(agent.alive)]
            self.pass_time(1.0)
        return False


POLICIES = st.builds(
    Policy,
    max_restarts=st.sampled_from((0, 2)),
    saves_on_signal=st.booleans(),
    stop_on_nan=st.booleans(),
    stall_timeout_s=st.sampled_from((None, 20.0)),
)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ROLES)
@given(data=st.data(), policy=POLICIES)
def test_any_order_of_messages_leads_to_an_outcome(strategy, data, policy):
    run = Simulation(ROLES[strategy], policy)
    tasks = [plan.task.name for plan in run.job.plans]
    steps = st.lists(st.tuples(messages(tasks), st.sampled_from((0.0, 0.0, 0.5, 3.0, 30.0))), max_size=25)
    ended = None
    for (host, message), seconds in data.draw(steps):
        if not run.supervisor.active and (ended := run.supervisor.restart(run.now)) is not None:
            break
        run.pass_time(seconds)
        run.deliver(host, message)
    while ended is None:
        assert run.end(), run.supervisor.tasks
        ended = run.supervisor.restart(run.now)
    outcome = run.supervisor.completed(ended)
    assert outcome.exit_code == 0 or outcome.reason
    assert len(outcome.attempts) <= 1 + policy.max_restarts
