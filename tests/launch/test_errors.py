import pytest

from tfdist.launch.errors import ExitCode, Problem, TfdistError, raise_problems


def test_no_problem_raises_nothing():
    raise_problems([])


def test_each_problem_is_a_line_and_the_same_one_of_several_hosts_is_one():
    full, old = Problem("the disk is full", "free some space", "h1"), Problem("Python is too old", "install 3.10", "h2")
    problems = [full, old, Problem(full.what, full.fix, "h3"), Problem("h4 and h5 differ", "install the same")]
    with pytest.raises(TfdistError) as caught:
        raise_problems(problems)
    assert str(caught.value).splitlines() == [
        "h1, h3: the disk is full; free some space",
        "h2: Python is too old; install 3.10",
        "h4 and h5 differ; install the same",
    ]
    assert caught.value.exit_code == ExitCode.HOST_LOST


def test_lines_above_the_limit_are_counted():
    with pytest.raises(TfdistError, match=r"^h0: a0; b\nh1: a1; b\nand 3 more$"):
        raise_problems((Problem(f"a{number}", "b", f"h{number}") for number in range(5)), most=2)
