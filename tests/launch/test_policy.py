from dataclasses import replace
from signal import SIGTERM, SIGUSR2

from tfdist.launch.policy import Policy


def test_the_time_for_a_login_grows_with_the_start_timeout_and_is_at_most_that():
    assert [Policy(start_timeout_s=seconds).login_s for seconds in (5.0, 30.0, 60.0, 90.0)] == [5.0, 14.0, 14.0, 21.0]


def test_a_restart_does_not_wait_for_what_tasks_save_after_a_failure():
    policy = Policy(grace_s=5.0, restart_grace_s=0.3)
    assert (policy.failure_grace_s, replace(policy, max_restarts=1).failure_grace_s) == (5.0, 0.3)
    assert replace(policy, grace_s=0.1, max_restarts=1).failure_grace_s == 0.1


def test_after_sigterm_tasks_have_as_long_as_the_scheduler_waits():
    policy = Policy(grace_s=120.0, kill_wait_s=30.0)
    assert (policy.stop_grace_s(SIGTERM), policy.save_grace_s(SIGTERM)) == (25.0, 25.0)
    assert (policy.stop_grace_s(SIGUSR2), policy.save_grace_s(SIGUSR2)) == (120.0, 120.0)
    patient = replace(policy, grace_s=5.0, kill_wait_s=100.0)
    assert (patient.stop_grace_s(SIGTERM), patient.save_grace_s(SIGTERM)) == (5.0, 95.0)
    assert replace(policy, kill_wait_s=3.0).save_grace_s(SIGTERM) == 1.0


def test_without_a_scheduler_a_save_has_at_least_25_s():
    assert [Policy(grace_s=seconds).save_grace_s(SIGTERM) for seconds in (5.0, 60.0)] == [25.0, 60.0]
    assert Policy(grace_s=5.0).stop_grace_s(SIGTERM) == 5.0
