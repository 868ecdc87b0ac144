from tfdist.launch.policy import Policy


def test_the_time_for_a_login_grows_with_the_start_timeout_and_is_at_most_that():
    assert [Policy(start_timeout_s=seconds).login_s for seconds in (5.0, 30.0, 60.0, 90.0)] == [5.0, 14.0, 14.0, 21.0]
