import signal

import pytest

from tfdist.launch.agents.messages import AgentLost, Exited, Interrupted, NotStarted
from tfdist.launch.diagnose import Status, Stopped, TimedOut, describe_exit, diagnose


def exited(task, code, time=0.0):
    return Exited(task, code, time, peak_memory_bytes=1, cpu_s=0.1)


COLLECTIVE = "UnavailableError: Collective ops is aborted by: ..."


def test_all_exit_0_is_success():
    outcome = diagnose([exited("worker-0", 0), exited("worker-1", 0)], {})
    assert (outcome.status, outcome.exit_code, outcome.reason) == (Status.OK, 0, "")
    assert set(outcome.exits) == {"worker-0", "worker-1"}


def test_servers_stopped_after_the_chief_are_no_failure():
    history = [exited("chief-0", 0, 1.0), Stopped(), exited("worker-0", -15, 2.0), exited("ps-0", -9, 2.1)]
    assert diagnose(history, {}).status is Status.OK


def test_the_culprit_is_who_failed_first_and_the_others_are_casualties():
    history = [exited("worker-1", 7, 1.0), exited("worker-0", 1, 1.5)]
    outcome = diagnose(history, {"worker-0": COLLECTIVE})
    assert (outcome.culprit, outcome.exit_code, dict(outcome.casualties)) == (
        "worker-1", 7, {"worker-0": "exited with code 1"},
    )  # fmt: skip


def test_a_survivors_secondary_error_does_not_make_it_the_culprit_though_its_clock_is_ahead():
    history = [exited("worker-0", 1, 1.0), exited("worker-1", -9, 1.2)]
    outcome = diagnose(history, {"worker-0": COLLECTIVE})
    assert outcome.culprit == "worker-1"
    assert outcome.exit_code == 137
    assert "SIGKILL" in outcome.reason


def test_a_worker_that_left_early_with_0_is_found():
    history = [exited("worker-1", 0, 1.0), exited("worker-0", 1, 2.0)]
    outcome = diagnose(history, {"worker-0": COLLECTIVE})
    assert outcome.culprit == "worker-1"
    assert outcome.exit_code == 1
    assert "still needed it" in outcome.reason


def test_one_that_fails_after_another_finished_well_is_the_culprit_itself():
    history = [exited("worker-1", 0, 1.0), exited("worker-0", 3, 2.0)]
    assert diagnose(history, {"worker-0": "ValueError: my own mistake"}).culprit == "worker-0"


def test_tasks_that_we_stopped_are_not_casualties():
    history = [exited("worker-0", 3, 1.0), Stopped(), exited("worker-1", -15, 2.0)]
    assert diagnose(history, {}).casualties == {}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interruption_ends_with_the_shells_code(number, code):
    outcome = diagnose([Interrupted(number), Stopped(), exited("worker-0", -15)], {})
    assert (outcome.status, outcome.exit_code) == (Status.INTERRUPTED, code)


def test_a_failure_before_the_interruption_is_what_is_told():
    history = [exited("worker-0", 4, 1.0), Interrupted(signal.SIGINT), Stopped(), exited("worker-1", -15, 2.0)]
    assert diagnose(history, {}).exit_code == 4


def test_time_limit_lost_agent_and_missing_program():
    assert diagnose([TimedOut(3.0), Stopped(), exited("worker-0", -15)], {}).exit_code == 124
    assert diagnose([AgentLost("h2", "its stream ended")], {}).exit_code == 69
    outcome = diagnose([NotStarted("worker-0", "No such file: 'x'"), Stopped()], {})
    assert (outcome.exit_code, outcome.culprit) == (127, "worker-0")


def test_how_names_codes_and_signals():
    assert describe_exit(3) == "exited with code 3"
    assert describe_exit(-11) == "was killed by SIGSEGV"
    assert "memory" in describe_exit(-9)
    assert describe_exit(-60) == "was killed by signal 60"


def test_on_several_hosts_culprit_and_casualties_are_said_with_theirs():
    history = [exited("worker-1", 7, 1.0), exited("worker-0", 1, 2.0)]
    hosts = {"worker-0": "h1", "worker-1": "h2"}
    outcome = diagnose(history, {"worker-0": COLLECTIVE}, hosts)
    assert outcome.reason == "worker-1 exited with code 7 on h2"
    assert outcome.casualties == {"worker-0": "exited with code 1 on h1"}
    outcome = diagnose([NotStarted("worker-0", "No such file: 'x'"), Stopped()], {}, hosts)
    assert outcome.reason == "worker-0 could not be started on h1: No such file: 'x'"
