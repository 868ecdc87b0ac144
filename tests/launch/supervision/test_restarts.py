"""Which tasks are restarted after which failures, and when no more."""

import signal
import time
from dataclasses import replace

import pytest

from tests.launch.supervisors import FakeChannel, exited, same_tasks, supervisor_of
from tfdist.launch.agents.inbox import AgentLost, Interrupted, Restarting
from tfdist.launch.agents.messages import Event, NotStarted, Output, Started, Stop
from tfdist.launch.diagnosis.diagnose import diagnose
from tfdist.launch.diagnosis.history import Attempt, Outcome, Status
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machine, local_machines
from tfdist.launch.policy import Policy, RestartOn
from tfdist.launch.supervision.restarts import (
    Restart,
    announcement,
    decide,
    delay_s,
    tasks_to_restart,
)

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
    supervisor.handle(ended("worker-0", -9))
    run_due(supervisor, 0.6)
    assert [stop.tasks for stop in channel.stops()] == [("chief-0", "ps-0", "ps-1", "worker-1")]


def test_a_password_in_the_reason_of_a_restart_is_masked():
    supervisor, _, announced = supervised()
    failed = {
        "event": "failed",
        "type": "ValueError",
        "message": "https://user:pw@host/ is down",
        "where": "train.py:7",
    }
    supervisor.handle(Event("worker-1", time.time(), failed))
    supervisor.handle(ended("worker-1", 1))
    run_due(supervisor, 3.0)
    (restarting,) = [message for message in announced if isinstance(message, Restarting)]
    for text in (restarting.reason, supervisor.log.attempts[0].reason):
        assert "https://user:***@host/ is down" in text


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
    assert not supervisor.active
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


def all_ended(next_tasks=same_tasks, **policy):
    """A supervisor of two workers of which one was killed, and the other one stopped then."""
    supervisor, channel, announced = supervised({"worker": 2}, next_tasks=next_tasks, **policy)
    supervisor.handle(Event("worker-0", time.time(), {"event": "record", "record": {"images": 1}}))
    supervisor.handle(ended("worker-1", -9))
    run_due(supervisor, 0.6)
    assert (channel.stops(), channel.starts()) == ([Stop(("worker-0",), 2.0)], [])
    supervisor.handle(ended("worker-0", -15))
    assert not supervisor.active
    return supervisor, channel, announced


def test_once_all_tasks_have_ended_all_are_started_again_and_nothing_is_known_about_the_attempt_before():
    supervisor, channel, announced = all_ended()
    assert supervisor.restart(time.monotonic()) is None
    assert [(type(message), message.attempt, message.tasks, message.whole) for message in announced[1:]] == [
        (Restarting, 1, ("worker-0", "worker-1"), True)
    ]
    assert announced[1].reason == "worker-1 was killed by SIGKILL (not by tfdist); restart 1 of 3: all tasks"
    assert (supervisor.history.entries, supervisor.records, supervisor.tasks.stopped) == ([], {}, False)
    run_due(supervisor)
    assert channel.starts() == [("worker-0", 1), ("worker-1", 1)]
    first, second = supervisor.log.attempts
    assert (first.culprit, first.exit_code, second.tasks, second.ended) == (
        "worker-1", 137, ("worker-0", "worker-1"), None,
    )  # fmt: skip


def test_a_restart_of_all_tasks_may_be_that_of_another_job():
    def on_one_worker(tasks, saved):
        job = replace(tasks.job, plans=tasks.job.plans[:1])
        return tasks.again(job, {"worker-0": tasks.channels["worker-0"]}), f"1 worker from step {saved.step}"

    supervisor, channel, announced = all_ended(on_one_worker)
    assert supervisor.restart(time.monotonic()) is None
    assert announced[-1].reason.endswith("; 1 worker from step 0")
    assert (announced[-1].tasks, announced[-1].hosts) == (("worker-0",), ("localhost",))
    assert supervisor.log.attempts[-1].note == "1 worker from step 0"
    run_due(supervisor)
    assert channel.starts() == [("worker-0", 1)]
    supervisor.handle(ended("worker-0", 0, attempt=1))
    outcome = supervisor.restart(time.monotonic())
    assert (outcome.status, len(outcome.attempts)) == (Status.OK, 2)


def test_the_time_limit_is_that_of_the_run_and_not_of_an_attempt():
    supervisor, channel, _ = all_ended(timeout_s=50.0)
    supervisor.timeout_at = at = time.monotonic() + 50.0
    supervisor.restart(time.monotonic())
    supervisor.deadlines.run_due(at - 0.1)
    assert len(channel.stops()) == 1
    supervisor.deadlines.run_due(at)
    assert [stop.tasks for stop in channel.stops()[1:]] == [("worker-0", "worker-1")]


def test_a_job_that_cannot_be_planned_again_ends_with_the_reason():
    def on_no_host(tasks, saved):
        raise TfdistError("h2 is lost, and https://user:pw@host/ is needed", 69)

    supervisor, channel, announced = all_ended(on_no_host)
    outcome = supervisor.restart(time.monotonic())
    assert (outcome.status, outcome.exit_code, outcome.reason) == (
        Status.FAILED, 137, "worker-1 was killed by SIGKILL (not by tfdist)",
    )  # fmt: skip
    assert outcome.not_restarted == "h2 is lost, and https://user:***@host/ is needed"
    assert (channel.starts(), len(outcome.attempts)) == ([], 1)
    assert not any(isinstance(message, Restarting) for message in announced)


def test_a_signal_while_the_tasks_are_stopped_prevents_the_restart():
    supervisor, _, _ = all_ended()
    supervisor.handle(Interrupted(signal.SIGINT))
    outcome = supervisor.restart(time.monotonic())
    assert (outcome.status, outcome.exit_code, outcome.signal) == (Status.INTERRUPTED, 130, signal.SIGINT)
    assert outcome.not_restarted == "interrupted before the restart"


def test_a_task_that_ends_slowly_before_its_restart_is_not_one_that_was_not_started_in_time():
    supervisor, channel, _ = supervised(start_timeout_s=5.0)
    for task in ("chief-0", "worker-0", "worker-1", "ps-1"):
        supervisor.handle(Started(task, 1, time.time()))
    supervisor.handle(ended("ps-0", -9))
    run_due(supervisor, 0.6)
    assert channel.stops() == [Stop(("chief-0", "ps-1"), 2.0)]
    supervisor.handle(ended("worker-1", -9))
    run_due(supervisor, 2.0)
    assert channel.starts() == [("worker-1", 2)]
    supervisor.handle(Started("worker-1", 2, time.time(), attempt=2))
    run_due(supervisor, 9.0)
    assert len(channel.stops()) == 1
    for task in ("chief-0", "ps-1"):
        supervisor.handle(ended(task, -9))
    run_due(supervisor, 9.0)
    assert channel.starts()[1:] == [("chief-0", 1), ("ps-0", 1), ("ps-1", 1)]


MULTI_WORKER = {"worker": RoleShape(3, restarts=("worker",))}
PARAMETER_SERVER = {
    "chief": RoleShape(1, restarts=()),
    "worker": RoleShape(2, leads=False, serves=True, restarts=()),
    "ps": RoleShape(2, leads=False, serves=True, restarts=("chief", "ps")),
}
EVALUATOR = {"evaluator": RoleShape(1, leads=False, follows=True, restarts=())}
POLICY = Policy(max_restarts=3)


def job_of(roles, reports_steps=True):
    program = Program(("true",), {}, "/", reports_steps=reports_steps)
    return plan_job(Shape(roles, True), program, local_machines(Machine((0,), ())))


def failed(culprit="worker-1", code=-9, reason="worker-1 failed", **values):
    culprits = (culprit,) if culprit else ()
    return Outcome(Status.FAILED, code, reason, culprit=culprit, culprits=culprits, **values)


def attempts_of(*steps, culprit="worker-1", seconds=100.0, reason="worker-1 failed"):
    """Failed attempts with these last steps, one after the other."""
    return [
        Attempt(number, (), number * seconds, (number + 1) * seconds, None if step is None else number * seconds,
                reason, culprit, 1, None, step)
        for number, step in enumerate(steps)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("roles", "culprits", "tasks"),
    [
        (MULTI_WORKER, ("worker-1",), ("worker-0", "worker-1", "worker-2")),
        (MULTI_WORKER, (), ("worker-0", "worker-1", "worker-2")),
        (MULTI_WORKER | EVALUATOR, ("worker-1",), ("worker-0", "worker-1", "worker-2", "evaluator-0")),
        (MULTI_WORKER | EVALUATOR, ("evaluator-0",), ("evaluator-0",)),
        (PARAMETER_SERVER, ("worker-1",), ("worker-1",)),
        (PARAMETER_SERVER, ("chief-0",), ("chief-0",)),
        (PARAMETER_SERVER, ("ps-1",), ("chief-0", "ps-0", "ps-1")),
        (PARAMETER_SERVER, ("ps-1", "worker-0"), ("chief-0", "worker-0", "ps-0", "ps-1")),
        (PARAMETER_SERVER, ("ps-1", "worker-0", "worker-1"), ("chief-0", "worker-0", "worker-1", "ps-0", "ps-1")),
        ({"worker": RoleShape(1, restarts=())}, ("worker-0",), ("worker-0",)),
        ({"worker": RoleShape(2, restarts=None)}, ("worker-0",), None),
        ({"worker": RoleShape(2, restarts=None)}, (), None),
    ],
)
def test_the_tasks_of_a_restart_depend_on_the_role_of_the_culprits(roles, culprits, tasks):
    assert tasks_to_restart(job_of(roles), culprits) == tasks


def test_a_restart_of_all_tasks_is_whole_and_that_of_some_is_not():
    every = ("worker-0", "worker-1", "worker-2")
    assert decide(failed(), job_of(MULTI_WORKER), POLICY, attempts_of(5)) == Restart(every, True, 0.0)
    assert decide(failed(), job_of(PARAMETER_SERVER), POLICY, attempts_of(5)) == Restart(("worker-1",), False, 0.0)


@pytest.mark.parametrize(
    ("outcome", "policy", "reason"),
    [
        (failed(), Policy(), ""),
        (Outcome(Status.OK, 0, ""), POLICY, ""),
        (Outcome(Status.INTERRUPTED, 143, "interrupted by SIGTERM"), POLICY, ""),
        (Outcome(Status.TIMEOUT, 124, "stopped after --timeout 5 s"), POLICY, ""),
        (failed(), Policy(max_restarts=3, restart_on=RestartOn.PREEMPTION), ""),
        (failed(code=42), Policy(max_restarts=3, restart_on=RestartOn.FAILURE), ""),
        (failed(code=2), POLICY, "the input is wrong, which a restart does not change"),
        (failed(code=127), POLICY, "its program could not be started"),
        (failed(None, code=75), POLICY, "its tasks could not be started in time"),
        (failed(warnings=("worker-0 could not be killed: its process is left over",)), POLICY,
         "a process could not be killed"),
    ],
)  # fmt: skip
def test_what_is_not_restarted(outcome, policy, reason):
    assert decide(outcome, job_of(MULTI_WORKER), policy, attempts_of(5)) == reason


@pytest.mark.parametrize(
    ("code", "restart_on"),
    [(1, RestartOn.ANY), (42, RestartOn.ANY), (1, RestartOn.FAILURE), (42, RestartOn.PREEMPTION), (-9, RestartOn.ANY)],
)
def test_what_is_restarted(code, restart_on):
    policy = Policy(max_restarts=1, restart_on=restart_on)
    assert isinstance(decide(failed(code=code), job_of(MULTI_WORKER), policy, attempts_of(5)), Restart)


def test_a_lost_host_is_a_failure_and_all_tasks_are_restarted():
    lost = failed(None, code=69, reason="lost the agent on h2: no message for 10 s")
    decision = decide(lost, job_of(PARAMETER_SERVER), POLICY, attempts_of(5, culprit=None))
    assert isinstance(decision, Restart)
    assert decision.whole


def test_max_restarts_counts_all_restarts():
    job, policy = job_of(MULTI_WORKER), Policy(max_restarts=2)
    assert isinstance(decide(failed(), job, policy, attempts_of(5, 10)), Restart)
    assert decide(failed(), job, policy, attempts_of(5, 10, 15)) == "--max-restarts 2 is used up"


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((40, 40), None),
        ((40, 40, 45), None),
        ((40, 45, 40), None),
        ((40, 40, 40), "worker-1 failed 3 times at step 40"),
        ((30, 40, 40, 40), "worker-1 failed 3 times at step 40"),
        ((None, None, None), "worker-1 failed 3 times before the first step"),
    ],
)
def test_the_same_failure_at_the_same_step_is_tried_three_times(steps, reason):
    decision = decide(failed(), job_of(MULTI_WORKER), Policy(max_restarts=99), attempts_of(*steps))
    assert (decision if isinstance(decision, str) else None) == reason


def test_different_culprits_at_the_same_step_are_different_failures():
    attempts = [*attempts_of(40, 40, culprit="worker-0"), *attempts_of(40)]
    assert isinstance(decide(failed(), job_of(MULTI_WORKER), Policy(max_restarts=99), attempts), Restart)


@pytest.mark.parametrize(("seconds", "restarts"), [(10.0, False), (29.0, False), (31.0, True)])
def test_a_task_without_steps_may_fail_three_times_within_a_minute(seconds, restarts):
    job = job_of(MULTI_WORKER, reports_steps=False)
    decision = decide(failed(), job, Policy(max_restarts=99), attempts_of(None, None, None, seconds=seconds))
    assert decision == (Restart(("worker-0", "worker-1", "worker-2"), True, 2.0) if restarts else
                        "worker-1 failed 3 times within 60 s")  # fmt: skip


def test_a_server_that_fails_at_once_is_not_restarted_for_ever_while_the_chief_takes_steps():
    decision = decide(
        failed(), job_of(PARAMETER_SERVER), Policy(max_restarts=99), attempts_of(10, 20, 30, seconds=20.0)
    )
    assert decision == "worker-1 failed 3 times within 60 s"


def with_reports(attempts):
    """The attempts, and after each one that ended as the chief reported the same failure."""
    return [
        each for first in attempts for each in (first, replace(first, started=first.ended, ended=first.ended + 0.002, last_step=None))
    ]  # fmt: skip


def test_a_failure_that_the_chief_reports_after_the_restart_of_its_worker_counts_once():
    job, twice = job_of(PARAMETER_SERVER), with_reports(attempts_of(10, 20, seconds=20.0))
    restart = decide(failed(), job, Policy(max_restarts=2), twice)
    assert restart == Restart(("worker-1",), False, 0.0)
    outcome = failed(attempts=tuple(twice))
    assert announcement(outcome, restart, job, Policy(max_restarts=2), 0) == "worker-1 failed; restart 2 of 2: worker-1"
    thrice = with_reports(attempts_of(10, 20, 30, seconds=40.0))
    assert decide(failed(), job, Policy(max_restarts=2), thrice) == "--max-restarts 2 is used up"
    thrice = with_reports(attempts_of(10, 20, 30, seconds=20.0))
    assert decide(failed(), job, Policy(max_restarts=2), thrice) == "worker-1 failed 3 times within 60 s"


@pytest.mark.parametrize("reason", ["was killed by SIGKILL: out of memory", "ResourceExhaustedError: OOM when", "MemoryError"])  # fmt: skip
def test_out_of_memory_is_restarted_only_after_a_step(reason):
    outcome, job = failed(reason=reason), job_of(MULTI_WORKER)
    assert decide(outcome, job, POLICY, attempts_of(None)) == "it was out of memory before its first step"
    assert isinstance(decide(outcome, job, POLICY, attempts_of(5)), Restart)
    own = job_of(MULTI_WORKER, reports_steps=False)
    assert isinstance(decide(outcome, own, POLICY, attempts_of(None)), Restart)
    served = job_of(PARAMETER_SERVER)  # another worker was restarted just before, and the chief has taken no step since
    assert isinstance(decide(outcome, served, POLICY, attempts_of(5, None)), Restart)
    assert decide(outcome, served, POLICY, attempts_of(None, None)) == "it was out of memory before its first step"


@pytest.mark.parametrize(
    ("steps", "delay"),
    [((5,), 0.0), ((5, 10), 0.0), ((5, 5), 1.0), ((5, 5, 5), 2.0), ((5, 5, 5, 10), 0.0), ((5, *[5] * 9), 60.0)],
)
def test_an_attempt_that_gets_no_further_is_followed_by_a_pause(steps, delay):
    assert delay_s(attempts_of(*steps)) == delay


def test_without_steps_an_attempt_that_lasted_is_followed_by_no_pause():
    assert delay_s(attempts_of(None, None, seconds=10.0)) == 1.0
    assert delay_s(attempts_of(None, None, seconds=90.0)) == 0.0


@pytest.mark.parametrize(
    ("roles", "tasks", "delay", "step", "sentence"),
    [
        (MULTI_WORKER, ("worker-0", "worker-1", "worker-2"), 0.0, 120, "all tasks, from step 120"),
        (MULTI_WORKER, ("worker-0", "worker-1", "worker-2"), 4.0, 0, "all tasks, from the start: no checkpoint, in 4 s"),
        (PARAMETER_SERVER, ("worker-1",), 0.0, 120, "worker-1"),
        (PARAMETER_SERVER, ("chief-0", "ps-0"), 0.0, 120, "chief-0, ps-0, from step 120"),
    ],
)  # fmt: skip
def test_a_restart_says_what_happened_and_what_is_next(roles, tasks, delay, step, sentence):
    outcome = failed(reason="worker-1 was killed by SIGKILL (not by tfdist)", attempts=tuple(attempts_of(step)))
    restart = Restart(tasks, roles is MULTI_WORKER, delay)
    text = announcement(outcome, restart, job_of(roles), POLICY, step)
    assert text == f"worker-1 was killed by SIGKILL (not by tfdist); restart 1 of 3: {sentence}"


def test_the_delay_has_a_limit_after_any_number_of_failures():
    assert delay_s(attempts_of(*[7] * 2000)) == 60.0
