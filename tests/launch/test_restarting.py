"""Restarts of some tasks while others continue, replayed to a supervisor whose channels only record what is sent."""

import signal
import time

from tfdist.launch.agents.launcher_messages import AgentLost, Interrupted, Restarting
from tfdist.launch.agents.messages import Event, NotStarted, Output, Started, Stop
from tfdist.launch.diagnosis.diagnose import diagnose
from tfdist.launch.diagnosis.outcome import Status
from tfdist.launch.hosts.host import Host

from .supervisors import FakeChannel, exited, supervisor_of

JOB = {"chief": 1, "worker": 2, "ps": 2}
PEER = "UnavailableError: Additional GRPC error information from remote target /job:ps/replica:0/task:0\n"


def supervised(counts=JOB, **policy):
    supervisor, channel = supervisor_of(counts, **{"max_restarts": 3, **policy})
    announced = []
    supervisor.tasks.announce = announced.append
    return supervisor, channel, announced


def ended(task, code, attempt=0):
    message = exited(task, code)
    return type(message)(message.task, message.code, message.time, 0, 0.0, attempt=attempt)


def run_due(supervisor, seconds=0.0):
    supervisor.deadlines.run_due(time.monotonic() + seconds)


def test_a_killed_worker_is_started_again_at_once_and_nothing_is_stopped():
    supervisor, channel, announced = supervised()
    supervisor.handle(ended("worker-1", -9))
    run_due(supervisor)
    assert channel.starts() == [("worker-1", 1)]
    assert channel.stops() == []
    assert [message.tasks for message in announced] == [("worker-1",)]
    assert supervisor.tasks.running == {"chief-0", "worker-0", "worker-1", "ps-0", "ps-1"}


def test_a_restarted_worker_is_told_its_attempt():
    supervisor, channel, _ = supervised()
    supervisor.handle(ended("worker-1", -9))
    run_due(supervisor)
    start = channel.sent[-1]
    assert start.env["TFDIST_ATTEMPT"] == "1"


def test_what_ended_an_attempt_does_not_confuse_the_next_one():
    supervisor, _, _ = supervised()
    supervisor.handle(Output("worker-1", "stderr", "ValueError: bad\n"))
    supervisor.handle(ended("worker-1", 1))
    run_due(supervisor)
    supervisor.handle(Started("worker-1", 1, time.time(), attempt=1))
    supervisor.handle(Event("worker-1", time.time(), {"event": "failed", "type": "ValueError"}))  # of attempt 0
    supervisor.handle(ended("chief-0", 0))
    for task in ("worker-0", "ps-0", "ps-1"):
        supervisor.handle(ended(task, -15))
    supervisor.handle(ended("worker-1", -15, attempt=1))
    assert not supervisor.active
    assert diagnose(supervisor.history, supervisor.job).status is Status.OK


def test_after_the_death_of_a_ps_chief_and_servers_are_stopped_then_started():
    supervisor, channel, announced = supervised()
    supervisor.handle(ended("ps-0", -9))
    run_due(supervisor)
    assert channel.stops() == []
    run_due(supervisor, 0.6)
    assert channel.stops() == [Stop(("chief-0", "ps-1"), 2.0)]
    supervisor.handle(ended("chief-0", 1))
    run_due(supervisor, 1.0)
    assert channel.starts() == []
    supervisor.handle(ended("ps-1", -15))
    run_due(supervisor, 1.0)
    assert channel.starts() == [("chief-0", 1), ("ps-0", 1), ("ps-1", 1)]
    assert announced[0].reason.startswith("ps-0 was killed by SIGKILL (not by tfdist); restart 1 of 3: chief-0, ps-0")


def test_a_chief_that_died_of_its_ps_is_started_again_with_it():
    supervisor, channel, announced = supervised()
    supervisor.handle(Output("chief-0", "stderr", PEER))
    supervisor.handle(ended("chief-0", 1))
    supervisor.handle(ended("ps-0", -9))
    run_due(supervisor, 0.6)
    supervisor.handle(ended("ps-1", -15))
    run_due(supervisor, 1.0)
    assert channel.starts() == [("chief-0", 1), ("ps-0", 1), ("ps-1", 1)]
    assert "ps-0 was killed" in announced[0].reason


def test_a_chief_that_dies_of_a_worker_which_was_just_restarted_does_not_wait_for_further_evidence():
    supervisor, channel, _ = supervised()
    supervisor.handle(ended("worker-1", -9))
    run_due(supervisor)
    supervisor.handle(Output("chief-0", "stderr", PEER.replace("job:ps", "job:worker")))
    supervisor.handle(ended("chief-0", 1))
    for seconds in (1.1, 2.1, 3.1):
        run_due(supervisor, seconds)
    assert ("chief-0", 2) in [*channel.starts(), *((task, 2) for task in supervisor.starts.tasks)]


def test_two_tasks_may_wait_for_their_restarts_at_the_same_time():
    supervisor, channel, _ = supervised()
    supervisor.handle(ended("worker-0", -9))
    supervisor.handle(ended("worker-1", -9))
    run_due(supervisor, 2.0)
    assert channel.starts() == [("worker-0", 1), ("worker-1", 2)]


def test_the_last_allowed_restart_is_followed_by_a_stop():
    supervisor, channel, _ = supervised(max_restarts=1)
    supervisor.handle(ended("worker-1", -9))
    run_due(supervisor)
    supervisor.handle(ended("worker-1", -9, attempt=1))
    run_due(supervisor, 0.6)
    assert [stop.tasks for stop in channel.stops()] == [("chief-0", "ps-0", "ps-1", "worker-0")]


def test_an_interruption_cancels_what_waits_for_its_start():
    supervisor, channel, _ = supervised()
    supervisor.handle(ended("ps-0", -9))
    run_due(supervisor, 0.6)
    supervisor.handle(Interrupted(signal.SIGINT))
    for task in ("chief-0", "ps-1"):
        supervisor.handle(ended(task, -15))
    for task in ("worker-0", "worker-1"):
        supervisor.handle(ended(task, -15))
    run_due(supervisor, 1.0)
    assert channel.starts() == []
    assert diagnose(supervisor.history, supervisor.job).status is Status.INTERRUPTED


def test_a_worker_that_cannot_be_started_again_ends_the_job():
    supervisor, channel, _ = supervised()
    supervisor.handle(ended("worker-1", -9))
    run_due(supervisor)
    supervisor.handle(NotStarted("worker-1", "its attempt 0 still runs", attempt=1))
    assert [stop.tasks for stop in channel.stops()] == [("chief-0", "ps-0", "ps-1", "worker-0")]


def test_a_host_that_is_lost_while_its_task_waits_for_its_start_ends_the_attempt():
    supervisor, _, announced = supervised()
    supervisor.handle(ended("worker-1", -9))
    supervisor.handle(AgentLost("localhost", "its stream ended", time.time()))
    run_due(supervisor, 3.0)
    assert len([message for message in announced if isinstance(message, Restarting)]) == 1
    assert not supervisor.active


def test_a_server_that_exits_with_0_is_restarted_after_the_settling_time():
    supervisor, channel, _ = supervised()
    supervisor.handle(ended("worker-1", 0))
    run_due(supervisor)
    assert channel.starts() == []
    run_due(supervisor, 1.1)
    run_due(supervisor, 1.2)
    assert channel.starts() == [("worker-1", 1)]


def test_nothing_is_restarted_alone_while_a_host_is_lost():
    supervisor, channel, announced = supervised()
    supervisor.tasks.channels = {**supervisor.tasks.channels, "worker-1": FakeChannel(Host("h2"))}
    supervisor.handle(Output("chief-0", "stderr", "ValueError: bad\n"))
    supervisor.handle(ended("chief-0", 1))
    supervisor.handle(AgentLost("h2", "its stream ended", time.time() + 0.1))
    run_due(supervisor, 3.0)
    assert channel.starts() == announced[:-1] == []
    assert [stop.tasks for stop in channel.stops()] == [("ps-0", "ps-1", "worker-0")]


def test_a_chief_that_is_being_stopped_is_not_asked_to_save():
    supervisor, channel, _ = supervised(saves_on_signal=True)
    for task in supervisor.tasks.channels:
        supervisor.handle(Started(task, 1, time.time()))
    supervisor.handle(ended("ps-0", -9))
    run_due(supervisor, 0.6)
    supervisor.handle(Interrupted(signal.SIGTERM))
    assert channel.stops()[-1].tasks == ("chief-0", "ps-1", "worker-0", "worker-1")
    assert not supervisor.saving.active


def test_the_job_is_stopped_at_once_if_the_host_of_the_task_that_saves_is_lost():
    supervisor, channel, _ = supervised(saves_on_signal=True)
    supervisor.tasks.channels = {**supervisor.tasks.channels, "chief-0": FakeChannel(Host("h2"))}
    supervisor.handle(Started("chief-0", 1, time.time()))
    supervisor.handle(Interrupted(signal.SIGTERM))
    assert channel.stops() == []
    supervisor.handle(AgentLost("h2", "its stream ended", time.time()))
    assert [stop.tasks for stop in channel.stops()] == [("ps-0", "ps-1", "worker-0", "worker-1")]


def test_a_task_that_could_not_be_started_does_not_delay_its_restart():
    supervisor, channel, _ = supervised()
    supervisor.handle(ended("ps-0", -9))
    run_due(supervisor, 0.6)
    for task in ("chief-0", "ps-1"):
        supervisor.handle(NotStarted(task, "too many processes"))
    run_due(supervisor, 1.0)
    assert channel.starts() == [("chief-0", 1), ("ps-0", 1), ("ps-1", 1)]
