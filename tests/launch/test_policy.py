from dataclasses import replace

from tfdist.launch.policy import Policy


def test_the_time_for_a_login_grows_with_the_start_timeout_and_is_at_most_that():
    assert [Policy(start_timeout_s=seconds).login_s for seconds in (5.0, 30.0, 60.0, 90.0)] == [5.0, 14.0, 14.0, 21.0]


def test_a_restart_does_not_wait_for_what_tasks_save_after_a_failure():
    policy = Policy(grace_s=5.0, restart_grace_s=0.3)
    assert (policy.failure_grace_s, replace(policy, max_restarts=1).failure_grace_s) == (5.0, 0.3)
    assert replace(policy, grace_s=0.1, max_restarts=1).failure_grace_s == 0.1
