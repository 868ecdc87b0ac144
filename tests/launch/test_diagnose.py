import signal

import pytest

from tfdist.launch.agents.messages import AgentLost, Exited, Interrupted, NotStarted, Output, Stopped
from tfdist.launch.diagnose import Status, describe_exit
from tfdist.launch.diagnose import diagnose as diagnose_history
from tfdist.launch.history import History, TimedOut

from .jobs import python_job


def exited(task, code, time=0.0):
    return Exited(task, code, time, peak_memory_bytes=1, cpu_s=0.1)


def diagnose(entries, tails):
    history = History(list(entries))
    for task, text in tails.items():
        history.add(Output(task, "stderr", text), 0.0)
    return diagnose_history(history, python_job("", {"worker": 2}))


COLLECTIVE = "UnavailableError: Collective ops is aborted by: ..."


def test_a_job_whose_tasks_all_exit_0_succeeds():
    outcome = diagnose([exited("worker-0", 0), exited("worker-1", 0)], {})
    assert (outcome.status, outcome.exit_code, outcome.reason) == (Status.OK, 0, "")
    assert set(outcome.exits) == {"worker-0", "worker-1"}


def test_servers_stopped_after_the_chief_are_not_failures():
    history = [exited("chief-0", 0, 1.0), Stopped(()), exited("worker-0", -15, 2.0), exited("ps-0", -9, 2.1)]
    assert diagnose(history, {}).status is Status.OK


def test_the_first_failure_is_the_culprit_and_later_ones_are_casualties():
    history = [exited("worker-1", 7, 1.0), exited("worker-0", 1, 1.5)]
    outcome = diagnose(history, {"worker-0": COLLECTIVE})
    assert (outcome.culprit, outcome.exit_code, dict(outcome.casualties)) == (
        "worker-1", 7, {"worker-0": "exited with code 1"},
    )  # fmt: skip


def test_a_task_that_reports_a_peers_failure_is_not_the_culprit_even_if_it_exits_first():
    history = [exited("worker-0", 1, 1.0), exited("worker-1", -9, 1.2)]
    outcome = diagnose(history, {"worker-0": COLLECTIVE})
    assert outcome.culprit == "worker-1"
    assert outcome.exit_code == 137
    assert "SIGKILL" in outcome.reason


def test_a_worker_that_exits_early_with_code_0_is_the_culprit():
    history = [exited("worker-1", 0, 1.0), exited("worker-0", 1, 2.0)]
    outcome = diagnose(history, {"worker-0": COLLECTIVE})
    assert outcome.culprit == "worker-1"
    assert outcome.exit_code == 1
    assert "still needed it" in outcome.reason


def test_a_task_with_its_own_error_is_the_culprit_even_if_another_has_exited_with_0():
    history = [exited("worker-1", 0, 1.0), exited("worker-0", 3, 2.0)]
    assert diagnose(history, {"worker-0": "ValueError: my own mistake"}).culprit == "worker-0"


def test_tasks_stopped_by_the_launcher_are_not_casualties():
    history = [exited("worker-0", 3, 1.0), Stopped(()), exited("worker-1", -15, 2.0)]
    assert diagnose(history, {}).casualties == {}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interruption_exits_with_128_plus_the_signal(number, code):
    outcome = diagnose([Interrupted(number), Stopped(()), exited("worker-0", -15)], {})
    assert (outcome.status, outcome.exit_code) == (Status.INTERRUPTED, code)


def test_a_failure_before_an_interruption_is_reported():
    history = [exited("worker-0", 4, 1.0), Interrupted(signal.SIGINT), Stopped(()), exited("worker-1", -15, 2.0)]
    assert diagnose(history, {}).exit_code == 4


def test_exit_codes_of_timeouts_lost_agents_and_missing_programs():
    assert diagnose([TimedOut(3.0), Stopped(()), exited("worker-0", -15)], {}).exit_code == 124
    assert diagnose([AgentLost("h2", "its stream ended")], {}).exit_code == 69
    outcome = diagnose([NotStarted("worker-0", "No such file: 'x'"), Stopped(())], {})
    assert (outcome.exit_code, outcome.culprit) == (127, "worker-0")


def test_exits_are_described_by_code_or_signal():
    assert describe_exit(3) == "exited with code 3"
    assert describe_exit(-11) == "was killed by SIGSEGV"
    assert "memory" in describe_exit(-9)
    assert describe_exit(-60) == "was killed by signal 60"
