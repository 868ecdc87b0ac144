"""Histories replayed to a supervisor whose channels only record what is sent."""

import json
import signal
import time
from queue import SimpleQueue

import pytest

from tfdist.launch.agents.inbox import Inbox
from tfdist.launch.agents.messages import (
    AgentLost,
    Event,
    Exited,
    Heartbeat,
    Interrupted,
    NotStarted,
    Output,
    Release,
    Stop,
    Stopped,
)
from tfdist.launch.diagnose import Status, diagnose
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.job import Program, Shape, plan_job
from tfdist.launch.logs import RunWriter
from tfdist.launch.machine import Machine, local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.rundir import RunDir
from tfdist.launch.supervise import Supervisor, supervise

from .jobs import roles


class FakeChannel:
    def __init__(self, host=LOCAL):
        self.host, self.last_received, self.sent, self.silent = host, time.monotonic(), [], False

    def send(self, message):
        self.sent.append(message)

    def stops(self):
        return [message for message in self.sent if isinstance(message, Stop)]


def supervisor_of(counts, **policy):
    job = plan_job(Shape(roles(**counts), True), Program(("true",), {}, "/"), local_machines(Machine((0,), ())))
    channel = FakeChannel()
    names = [plan.task.name for plan in job.plans]
    supervisor = Supervisor(job, dict.fromkeys(names, channel), Policy(**policy), SimpleQueue(), running=set(names))
    return supervisor, channel


def exited(task, code):
    return Exited(task, code, time.time(), 0, 0.0)


def test_the_other_tasks_are_stopped_a_while_after_a_failure():
    supervisor, channel = supervisor_of({"worker": 3}, settle_s=3.0)
    supervisor.handle(exited("worker-1", 1))
    supervisor.check_deadlines(time.monotonic() + 2.0)
    assert channel.stops() == []
    supervisor.check_deadlines(time.monotonic() + 3.1)
    assert channel.stops() == [Stop(("worker-0", "worker-2"), 5.0)]


def test_a_second_failure_does_not_delay_the_stop():
    supervisor, _ = supervisor_of({"worker": 3}, settle_s=3.0)
    supervisor.handle(exited("worker-1", 1))
    first = supervisor.stop_at
    supervisor.handle(exited("worker-2", 1))
    assert supervisor.stop_at == first


def test_the_first_interruption_has_a_grace_period_and_the_second_kills():
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.handle(Interrupted(signal.SIGINT))
    supervisor.handle(Interrupted(signal.SIGINT))
    assert [stop.grace_s for stop in channel.stops()] == [5.0, 0.0]


def test_the_leaders_exit_stops_the_servers_and_succeeds():
    supervisor, channel = supervisor_of({"chief": 1, "worker": 1, "ps": 1})
    supervisor.handle(exited("chief-0", 0))
    assert channel.stops() == [Stop(("ps-0", "worker-0"), 5.0)]
    supervisor.handle(exited("ps-0", -15))
    supervisor.handle(exited("worker-0", -15))
    assert not supervisor.running
    assert diagnose(supervisor.history, supervisor.job).status is Status.OK


def test_a_task_that_cannot_start_stops_the_others_at_once():
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.handle(NotStarted("worker-0", "no such file"))
    assert channel.stops()[0].tasks == ("worker-1",)


def test_the_tasks_of_a_lost_agent_no_longer_run():
    supervisor, _ = supervisor_of({"worker": 2})
    supervisor.handle(AgentLost("localhost", "its stream ended"))
    assert not supervisor.running
    assert diagnose(supervisor.history, supervisor.job).exit_code == 69


def test_a_silent_agent_is_lost():
    supervisor, channel = supervisor_of({"worker": 1}, silence_s=10.0)
    channel.host = Host("h2", "10.0.0.2")
    for seconds in (4.0, 8.0, 9.9):
        supervisor.check_deadlines(channel.last_received + seconds)
    assert supervisor.running
    supervisor.check_deadlines(channel.last_received + 10.1)
    assert not supervisor.running


def test_after_a_pause_of_the_launcher_agents_get_the_full_limit_again():
    supervisor, channel = supervisor_of({"worker": 1}, silence_s=10.0)
    channel.host = Host("h2", "10.0.0.2")
    resumed = channel.last_received + 60.0
    for seconds in (0.0, 4.0, 8.0, 9.9):
        supervisor.check_deadlines(resumed + seconds)
    assert supervisor.running
    supervisor.check_deadlines(resumed + 10.1)
    assert not supervisor.running


def test_the_local_agent_may_be_silent():
    supervisor, channel = supervisor_of({"worker": 1}, silence_s=10.0)
    supervisor.check_deadlines(channel.last_received + 1000.0)
    assert supervisor.running


def test_the_time_limit_stops_the_job_once():
    supervisor, channel = supervisor_of({"worker": 1}, timeout_s=5.0)
    supervisor.time_out_at = 100.0
    channel.last_received = 100.0
    supervisor.check_deadlines(99.9)
    assert not channel.stops()
    supervisor.check_deadlines(100.0)
    supervisor.check_deadlines(101.0)
    assert len(channel.stops()) == 1


@pytest.mark.parametrize(
    ("counts", "arrived", "opens"),
    [
        ({"worker": 2}, ["worker-0"], False),
        ({"worker": 2}, ["worker-0", "worker-1"], True),
        ({"chief": 1, "worker": 2, "ps": 1}, ["chief-0"], True),
    ],
)
def test_the_barrier_opens_when_all_training_tasks_have_reached_it(counts, arrived, opens):
    supervisor, channel = supervisor_of(counts)
    for task in arrived:
        supervisor.handle(Event(task, 0.0, {"event": "barrier"}))
    assert (Release(0) in channel.sent) is opens


def test_messages_about_a_task_of_another_host_are_dropped_and_logged(tmp_path):
    supervisor, channel = supervisor_of({"worker": 2})
    other = FakeChannel(Host("h2", "10.0.0.2"))
    supervisor.channels = {"worker-0": channel, "worker-1": other}
    supervisor.inbox = Inbox()
    forged = (Output("worker-0", "stdout", "forged\n"), Output("../../x", "stdout", "x\n"), exited("worker-0", 0))
    for message in (*forged, Event("worker-0", 0.0, {"event": "record", "record": {}}), exited("worker-1", 3)):
        supervisor.inbox.put(other.host, message)
    supervisor.inbox.put(channel.host, Output("worker-0", "stdout", "real\n"))
    supervisor.inbox.put(channel.host, exited("worker-0", 1))
    seen = []
    with RunWriter(RunDir(tmp_path / "runs" / "one")) as writer:
        supervise(supervisor, writer, seen.append)
    assert not set(forged) & set(seen)
    assert supervisor.records == {}
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.log")}
    assert files == {"runs/one/attempt-0/worker-0/stdout.log"}
    assert (tmp_path / files.pop()).read_text() == "real\n"
    events = [json.loads(line) for line in (tmp_path / "runs/one/events.jsonl").read_text().splitlines()]
    refused = [(event["host"], event["message"]) for event in events if event["kind"] == "Refused"]
    assert refused == [("h2", "Output"), ("h2", "Output"), ("h2", "Exited"), ("h2", "Event")]


def test_stops_and_silent_hosts_are_announced():
    supervisor, channel = supervisor_of({"worker": 2}, silence_s=10.0)
    seen = []
    supervisor.announce = seen.append
    supervisor.handle(Interrupted(signal.SIGINT))
    (stopped,) = seen
    assert (type(stopped), stopped.tasks) == (Stopped, ("worker-0", "worker-1"))
    channel.host = Host("h2", "10.0.0.2")
    for seconds in (4.0, 8.0, 10.1):
        supervisor.check_deadlines(channel.last_received + seconds)
    assert (type(seen[1]), seen[1].host) == (AgentLost, "h2")


def test_a_display_can_count_seconds_while_no_message_arrives(tmp_path):
    supervisor, channel = supervisor_of({"worker": 1}, heartbeat_s=0.01)
    supervisor.inbox = Inbox()
    seen = []

    def end_after_two(message):
        seen.append(message)
        if len(seen) == 2:
            supervisor.inbox.put(channel.host, exited("worker-0", 0))

    with RunWriter(RunDir(tmp_path / "runs" / "one")) as writer:
        supervise(supervisor, writer, end_after_two)
    assert [type(message) for message in seen[:2]] == [Heartbeat, Heartbeat]
