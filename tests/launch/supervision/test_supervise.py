"""Histories replayed to a supervisor whose channels only record what is sent."""

import json
import signal
import time
from dataclasses import replace

import pytest

from tests.launch.supervisors import FakeChannel, exited, supervisor_of
from tfdist.launch.agents.inbox import AgentLost, Arrival, Inbox, Interrupted, NextTurn, Stopped
from tfdist.launch.agents.messages import (
    Event,
    Exited,
    Heartbeat,
    Inspect,
    Inspected,
    Listening,
    NotStarted,
    Output,
    Release,
    Started,
    Stop,
    Terminated,
)
from tfdist.launch.diagnosis.diagnose import diagnose
from tfdist.launch.diagnosis.history import Status
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.supervise import supervise


def test_the_other_tasks_are_stopped_a_while_after_a_failure():
    supervisor, channel = supervisor_of({"worker": 3}, settle_s=3.0)
    supervisor.handle(exited("worker-1", 1))
    supervisor.deadlines.run_due(time.monotonic() + 2.0)
    assert channel.stops() == []
    supervisor.deadlines.run_due(time.monotonic() + 3.1)
    assert channel.stops() == [Stop(("worker-0", "worker-2"), 5.0)]


def test_a_second_failure_does_not_delay_the_stop():
    supervisor, _ = supervisor_of({"worker": 3}, settle_s=3.0)
    supervisor.handle(exited("worker-1", 1))
    first = supervisor.deadlines.get(supervisor.settle)
    supervisor.handle(exited("worker-2", 1))
    assert supervisor.deadlines.get(supervisor.settle) == first


def frozen(task):
    return Inspected({task: "T"}, {task: "do_signal_stop"}, request=1)


PEER = "UnavailableError: Collective ops is aborted by: Socket closed\n"


def test_while_a_failure_is_a_peers_the_others_are_looked_at_and_not_stopped():
    supervisor, channel = supervisor_of({"worker": 2}, settle_s=3.0, settle_secondary_s=12.0)
    supervisor.handle(Output("worker-0", "stderr", PEER))
    supervisor.handle(exited("worker-0", 1))
    now = time.monotonic()
    for seconds in (3.1, 5.0, 8.0, 11.9):
        supervisor.deadlines.run_due(now + seconds)
    assert channel.stops() == []
    assert any(isinstance(message, Inspect) and message.tasks == ("worker-1",) for message in channel.sent)
    supervisor.deadlines.run_due(now + 12.1)
    assert channel.stops() == [Stop(("worker-1",), 5.0)]


def test_a_process_that_is_stopped_ends_the_settling():
    supervisor, channel = supervisor_of({"worker": 2}, settle_s=3.0, settle_secondary_s=12.0)
    supervisor.handle(Output("worker-0", "stderr", PEER))
    supervisor.handle(exited("worker-0", 1))
    (request,) = (message for message in channel.sent if isinstance(message, Inspect))
    supervisor.tasks.requests.take(LOCAL, replace(frozen("worker-1"), request=request.request))
    supervisor.deadlines.run_due(time.monotonic() + 3.1)
    assert channel.stops() == [Stop(("worker-1",), 5.0)]
    supervisor.handle(exited("worker-1", -9))
    outcome = diagnose(supervisor.tasks.history, supervisor.job)
    assert outcome.reason == "worker-1 is stopped (state T: SIGSTOP or a debugger)"


def test_a_reported_exception_stops_the_others_first():
    supervisor, channel = supervisor_of({"worker": 2}, settle_s=3.0, settle_secondary_s=12.0)
    failed = {"event": "failed", "type": "ValueError", "message": "bad data", "where": "train.py:7"}
    now = time.monotonic()
    supervisor.handle(Event("worker-1", time.time(), failed))
    supervisor.deadlines.run_due(now + 3.1)
    assert channel.stops() == [Stop(("worker-0",), 5.0)]
    supervisor.handle(exited("worker-0", -15))
    supervisor.deadlines.run_due(now + 12.1)
    assert channel.stops()[1:] == [Stop(("worker-1",), 5.0)]
    supervisor.handle(exited("worker-1", -15))
    outcome = diagnose(supervisor.tasks.history, supervisor.job)
    assert (outcome.reason, outcome.exit_code) == ("worker-1 failed: ValueError: bad data", 1)


def test_a_task_that_is_already_stopped_is_not_stopped_again_with_one_that_had_more_time():
    supervisor, channel = supervisor_of({"worker": 2}, grace_s=60.0)
    now = time.monotonic()
    supervisor.handle(Event("worker-1", time.time(), {"event": "failed", "type": "ValueError"}))
    supervisor.deadlines.run_due(now + 3.1)
    supervisor.deadlines.run_due(now + 12.1)
    assert channel.stops() == [Stop(("worker-0",), 60.0), Stop(("worker-1",), 60.0)]


def test_a_second_lost_host_is_waited_for():
    supervisor, _ = supervisor_of({"worker": 3}, lost_grace_s=2.0)
    hosts = [Host(f"h{index}") for index in range(3)]
    plans = tuple(replace(plan, host=host) for plan, host in zip(supervisor.job.plans, hosts, strict=True))
    supervisor.tasks.job = replace(supervisor.job, plans=plans)
    channels = {f"worker-{index}": FakeChannel(host) for index, host in enumerate(hosts)}
    supervisor.tasks.channels = channels
    now = time.monotonic()
    supervisor.handle(AgentLost("h1", "no message for 10 s", time.time()), now)
    supervisor.handle(AgentLost("h2", "no message for 10 s", time.time()), now + 1.8)
    supervisor.deadlines.run_due(now + 3.7)
    assert channels["worker-0"].stops() == []
    supervisor.deadlines.run_due(now + 3.9)
    assert channels["worker-0"].stops() == [Stop(("worker-0",), 2.0)]
    assert diagnose(supervisor.tasks.history, supervisor.job).exit_code == 69


def test_messages_about_attempts_that_never_were_are_refused():
    supervisor, channel = supervisor_of({"worker": 1})
    supervisor.tasks.renew(["worker-0"], 1)
    outputs = {attempt: Output("worker-0", "stdout", "x", attempt=attempt) for attempt in (-1, 0, 1, 2)}
    arrivals = {attempt: Arrival(channel.host, output, 0.0, 0) for attempt, output in outputs.items()}
    assert [attempt for attempt in outputs if supervisor.accepts(arrivals[attempt])] == [0, 1]


def test_an_interruption_after_a_failure_does_not_settle_again():
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.handle(Interrupted(signal.SIGINT))
    supervisor.handle(exited("worker-0", 1))
    supervisor.deadlines.run_due(time.monotonic() + 60.0)
    assert len(channel.stops()) == 1


def test_servers_that_exit_with_0_are_not_stopped_again():
    supervisor, channel = supervisor_of({"chief": 1, "worker": 2})
    for task in ("chief-0", "worker-0", "worker-1"):
        supervisor.handle(exited(task, 0))
    assert channel.stops() == [Stop(("worker-0", "worker-1"), 5.0)]


def test_tasks_that_were_stopped_before_their_start_do_not_start_too_late():
    supervisor, channel = supervisor_of({"worker": 2}, grace_s=300.0)
    supervisor.deadlines[supervisor._start_timed_out] = time.monotonic() + 60.0
    supervisor.handle(Interrupted(signal.SIGINT))
    supervisor.deadlines.run_due(time.monotonic() + 61.0)
    assert len(channel.stops()) == 1
    assert supervisor.tasks.running == {"worker-0", "worker-1"}


def inspected(supervisor, channel, **cpu_s):
    """Answer the last request with these CPU times."""
    request = [message for message in channel.sent if isinstance(message, Inspect)][-1]
    times = {name.replace("_", "-"): value for name, value in cpu_s.items()}
    reply = Inspected(dict.fromkeys(times, "S"), {}, times, request=request.request)
    supervisor.tasks.requests.take(LOCAL, reply)


def after_an_early_exit(listening=("worker-0",), cpu_per_check=0.01, output=None):
    """What the launcher sends while worker-0 runs for 20 s after worker-1 has exited with code 0."""
    supervisor, channel = supervisor_of({"worker": 2}, ports=True)
    now = time.monotonic()
    for task in listening:
        supervisor.handle(Listening(task, time.time() - 60.0))
    supervisor.handle(exited("worker-1", 0), now)
    for check in range(1, 10):
        if supervisor.deadlines.get(supervisor.joining.check) is not None:
            supervisor.deadlines.run_due(now + 2.0 * check)
            if output and not supervisor.tasks.stopped:
                supervisor.handle(output)
            if any(isinstance(message, Inspect) for message in channel.sent):
                inspected(supervisor, channel, worker_0=cpu_per_check * check)
    return supervisor, channel


def test_a_worker_that_waits_for_one_that_never_joined_is_stopped():
    supervisor, channel = after_an_early_exit()
    assert channel.stops() == [Stop(("worker-0",), 5.0)]
    supervisor.handle(exited("worker-0", -15))
    outcome = diagnose(supervisor.tasks.history, supervisor.job)
    assert outcome.reason == "worker-1 exited with code 0 before it joined the cluster; worker-0 waits for it"
    assert outcome.exit_code == 1


@pytest.mark.parametrize(
    "peer",
    [
        {"listening": ()},
        {"listening": ("worker-0", "worker-1")},
        {"cpu_per_check": 1.5},
        {"output": Output("worker-0", "stdout", "epoch 3\n")},
    ],
    ids=["no cluster", "it had joined", "busy", "writes"],
)
def test_a_worker_that_continues_alone_is_left_alone(peer):
    supervisor, channel = after_an_early_exit(**peer)
    assert channel.stops() == []
    supervisor.handle(exited("worker-0", 0))
    assert diagnose(supervisor.tasks.history, supervisor.job).status is Status.OK


def test_the_barrier_does_not_wait_for_tasks_that_have_exited():
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.handle(Event("worker-0", 0.0, {"event": "barrier"}))
    supervisor.handle(exited("worker-1", 0))
    assert Release(0, {}) in channel.sent


def test_a_serving_task_that_exits_with_code_0_before_the_leader_is_a_failure():
    supervisor, channel = supervisor_of({"chief": 1, "ps": 1}, settle_s=3.0)
    supervisor.handle(exited("ps-0", 0))
    supervisor.deadlines.run_due(time.monotonic() + 3.1)
    assert channel.stops() == [Stop(("chief-0",), 5.0)]


def test_an_evaluator_that_does_not_end_is_stopped_some_time_after_the_workers():
    supervisor, channel = supervisor_of({"worker": 2, "evaluator": 1})
    supervisor.handle(exited("worker-0", 0))
    supervisor.handle(exited("worker-1", 0))
    supervisor.deadlines.run_due(time.monotonic() + 299.0)
    assert channel.stops() == []
    supervisor.deadlines.run_due(time.monotonic() + 301.0)
    assert channel.stops() == [Stop(("evaluator-0",), 5.0)]


def test_the_first_interruption_has_a_grace_period_and_the_second_kills():
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.handle(Interrupted(signal.SIGINT))
    supervisor.handle(Interrupted(signal.SIGINT))
    assert [stop.grace_s for stop in channel.stops()] == [5.0, 0.0]


@pytest.mark.parametrize(
    "received", [[Terminated(), Interrupted(signal.SIGTERM)], [Interrupted(signal.SIGTERM), Terminated()]]
)
def test_a_signal_that_the_launcher_and_an_agent_receive_counts_once(received):
    supervisor, channel = supervisor_of({"worker": 2}, kill_wait_s=30.0)
    for message in (*received, Terminated()):
        supervisor.handle(message)
    assert [stop.grace_s for stop in channel.stops()] == [5.0]
    outcome = diagnose(supervisor.tasks.history, supervisor.job)
    assert (outcome.exit_code, outcome.reason, outcome.signal) == (143, "interrupted by SIGTERM", signal.SIGTERM)
    supervisor.handle(Interrupted(signal.SIGTERM))
    assert [stop.grace_s for stop in channel.stops()] == [5.0, 0.0]


def test_ctrl_c_after_a_signal_that_an_agent_has_received_kills():
    supervisor, channel = supervisor_of({"worker": 2}, kill_wait_s=30.0)
    supervisor.handle(Terminated())
    supervisor.handle(Interrupted(signal.SIGINT))
    assert [stop.grace_s for stop in channel.stops()] == [5.0, 0.0]


def test_tasks_save_as_long_as_the_scheduler_waits():
    supervisor, channel = supervisor_of({"worker": 2}, kill_wait_s=60.0, saves_on_signal=True)
    for task in ("worker-0", "worker-1"):
        supervisor.handle(Started(task, 1, time.time()))
    supervisor.handle(Terminated())
    assert channel.stops() == [Stop(("worker-0",), 55.0, True)]


def test_the_leaders_exit_stops_the_servers_and_succeeds():
    supervisor, channel = supervisor_of({"chief": 1, "worker": 1, "ps": 1})
    supervisor.handle(exited("chief-0", 0))
    assert channel.stops() == [Stop(("ps-0", "worker-0"), 5.0)]
    supervisor.handle(exited("ps-0", -15))
    supervisor.handle(exited("worker-0", -15))
    assert not supervisor.tasks.running
    assert diagnose(supervisor.tasks.history, supervisor.job).status is Status.OK


def test_a_task_that_cannot_start_stops_the_others_at_once():
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.handle(NotStarted("worker-0", "no such file"))
    assert channel.stops()[0].tasks == ("worker-1",)


def test_the_tasks_of_a_lost_agent_no_longer_run():
    supervisor, _ = supervisor_of({"worker": 2})
    supervisor.handle(AgentLost("localhost", "its stream ended"))
    assert not supervisor.tasks.running
    assert diagnose(supervisor.tasks.history, supervisor.job).exit_code == 69


def test_a_silent_agent_is_lost():
    supervisor, channel = supervisor_of({"worker": 1}, silence_s=10.0)
    channel.host = Host("h2", "10.0.0.2")
    for seconds in (4.0, 8.0, 9.9):
        supervisor.deadlines.run_due(channel.last_received + seconds)
    assert supervisor.tasks.running
    supervisor.deadlines.run_due(channel.last_received + 10.1)
    assert not supervisor.tasks.running


def test_after_a_pause_of_the_launcher_agents_get_the_full_limit_again():
    supervisor, channel = supervisor_of({"worker": 1}, silence_s=10.0)
    channel.host = Host("h2", "10.0.0.2")
    resumed = channel.last_received + 60.0
    for seconds in (0.0, 4.0, 8.0, 9.9):
        supervisor.deadlines.run_due(resumed + seconds)
    assert supervisor.tasks.running
    supervisor.deadlines.run_due(resumed + 10.1)
    assert not supervisor.tasks.running


def test_the_local_agent_may_be_silent():
    supervisor, channel = supervisor_of({"worker": 1}, silence_s=10.0)
    supervisor.deadlines.run_due(channel.last_received + 1000.0)
    assert supervisor.tasks.running


def test_the_time_limit_stops_the_job_once():
    supervisor, channel = supervisor_of({"worker": 1}, timeout_s=5.0)
    supervisor.deadlines[supervisor._time_out] = 100.0
    channel.last_received = 100.0
    supervisor.deadlines.run_due(99.9)
    assert not channel.stops()
    supervisor.deadlines.run_due(100.0)
    supervisor.deadlines.run_due(101.0)
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
    assert (Release(0, {}) in channel.sent) is opens


def test_the_barrier_closes_again_behind_the_tasks():
    supervisor, channel = supervisor_of({"worker": 2})
    for task in ("worker-0", "worker-1", "worker-1"):
        supervisor.handle(Event(task, 0.0, {"event": "barrier"}))
    assert channel.sent.count(Release(0, {})) == 1
    supervisor.handle(Event("worker-0", 0.0, {"event": "barrier"}))
    assert channel.sent.count(Release(0, {})) == 2


def test_messages_about_a_task_of_another_host_are_dropped_and_logged(tmp_path):
    supervisor, channel = supervisor_of({"worker": 2})
    other = FakeChannel(Host("h2", "10.0.0.2"))
    supervisor.tasks.channels = {"worker-0": channel, "worker-1": other}
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
    assert refused == [("h2", "Output"), ("h2", "Exited"), ("h2", "Event")]  # each kind once


def test_stops_and_silent_hosts_are_announced():
    supervisor, channel = supervisor_of({"worker": 2}, silence_s=10.0)
    seen = []
    supervisor.tasks.announce = seen.append
    supervisor.handle(Interrupted(signal.SIGINT))
    (stopped,) = seen
    assert (type(stopped), stopped.tasks) == (Stopped, ("worker-0", "worker-1"))
    channel.host = Host("h2", "10.0.0.2")
    for seconds in (4.0, 8.0, 10.1):
        supervisor.deadlines.run_due(channel.last_received + seconds)
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


def test_messages_of_an_earlier_attempt_change_nothing():
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.tasks.renew(["worker-1"], 1)
    supervisor.tasks.start(["worker-1"])
    channel.sent.clear()
    supervisor.handle(Event("worker-0", 0.0, {"event": "barrier"}))
    supervisor.handle(Event("worker-1", 0.0, {"event": "barrier"}))
    supervisor.handle(exited("worker-1", 1))
    assert supervisor.tasks.running == {"worker-0", "worker-1"}
    assert supervisor.deadlines.get(supervisor.settle) is None
    assert channel.sent == []
    supervisor.handle(Event("worker-1", 0.0, {"event": "barrier"}, attempt=1))
    assert sorted(message.attempt for message in channel.sent) == [0, 1]


def test_a_host_whose_tasks_have_ended_may_leave():
    supervisor, channel = supervisor_of({"worker": 2})
    elsewhere = FakeChannel(Host("h2", "10.0.0.2"))
    supervisor.tasks.channels = {"worker-0": channel, "worker-1": elsewhere}
    supervisor.handle(exited("worker-1", 0))
    supervisor.handle(AgentLost("h2", "its stream ended", time.time()))
    assert supervisor.tasks.running == {"worker-0"}
    assert supervisor.deadlines.get(supervisor.settle) is None
    supervisor.handle(exited("worker-0", 0))
    assert diagnose(supervisor.tasks.history, supervisor.job).status is Status.OK


def stop_reasons(counts, *messages, checks_at=0.0, **policy):
    """The reasons of the stops that these messages lead to."""
    supervisor, _ = supervisor_of(counts, **policy)
    supervisor.tasks.announce = (announced := []).append
    for message in messages:
        supervisor.handle(message)
    supervisor.deadlines.run_due(time.monotonic() + checks_at)
    return [(message.reason, message.grace_s > 0) for message in announced if isinstance(message, Stopped)]


@pytest.mark.parametrize(
    ("messages", "reasons"),
    [
        ([Interrupted(signal.SIGINT)] * 2, [("Ctrl-C", True), ("Ctrl-C", False)]),
        ([Interrupted(signal.SIGTERM)], [("SIGTERM", True)]),
        ([Interrupted(signal.SIGTERM, by="tfdist stop")], [("tfdist stop", True)]),
        ([NotStarted("worker-1", "no such file")], [("worker-1 could not be started", True)]),
        ([Exited("worker-1", 3, 0.0, 0, 0.0)], [("worker-1 failed", True)]),
        ([Event("worker-1", 0.0, {"event": "failed", "type": "ValueError"})], [("worker-1 failed", True)]),
    ],
)
def test_a_stop_says_what_has_happened(messages, reasons):
    assert stop_reasons({"worker": 3}, *messages, checks_at=20.0) == reasons


def test_a_stop_of_servers_after_success_has_no_reason():
    assert stop_reasons({"chief": 1, "ps": 1}, Exited("chief-0", 0, 0.0, 0, 0.0)) == [("", True)]


def test_a_stop_at_a_time_limit_names_the_option():
    supervisor, _ = supervisor_of({"worker": 1}, timeout_s=5.0)
    supervisor.deadlines[supervisor._time_out] = 0.0
    supervisor.tasks.announce = (announced := []).append
    supervisor.deadlines.run_due(1.0)
    assert [stopped.reason for stopped in announced] == ["--timeout 5 s"]


def barrier(task):
    return Event(task, time.time(), {"event": "barrier", "step_s": 0.1})


@pytest.mark.parametrize("first", ["exit", "barrier"])
def test_no_turn_waits_for_a_task_that_has_exited(first):
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.barrier.paced = True
    messages = [exited("worker-1", 0), barrier("worker-0")]
    for message in messages if first == "exit" else reversed(messages):
        supervisor.handle(message)
    assert channel.stops() == [Stop(("worker-0",), 5.0)]
    supervisor.handle(exited("worker-0", -15))
    outcome = diagnose(supervisor.tasks.history, supervisor.job)
    assert (outcome.status, outcome.reason) == (
        Status.FAILED,
        "worker-1 exited with code 0 while other tasks wait for a turn",
    )


def test_after_the_last_turn_tasks_exit_one_after_the_other():
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.barrier.paced = True
    for message in (barrier("worker-0"), barrier("worker-1"), NextTurn({"windows": 0, "steps": 0})):
        supervisor.handle(message)
    supervisor.handle(exited("worker-0", 0))
    assert channel.stops() == []
    supervisor.handle(exited("worker-1", 0))
    assert diagnose(supervisor.tasks.history, supervisor.job).status is Status.OK


def test_a_task_that_exits_when_it_is_stopped_stops_nothing_again():
    supervisor, channel = supervisor_of({"worker": 2})
    supervisor.barrier.paced = True
    for message in (barrier("worker-0"), barrier("worker-1"), Interrupted(signal.SIGINT), exited("worker-1", 0)):
        supervisor.handle(message)
    assert channel.stops() == [Stop(("worker-0", "worker-1"), 5.0)]
