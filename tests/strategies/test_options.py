"""How options are written."""

import pytest

from tfdist.strategies.options import Placement, option_name, option_words


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ps", 2, "--ps 2"),
        ("sync", True, "--sync"),
        ("sync", False, "--no-sync"),
        ("hosts", ["a", "b"], "--hosts a --hosts b"),
        ("stall_timeout", 60.0, "--stall-timeout 60"),
        ("learning_rate", 0.123456789, "--set learning_rate=0.123456789"),
        ("timeout_collective_s", 0.5, "--set timeout_collective=0.5"),
        ("memory_limit_mb", 4096, "--set memory_limit=4096M"),
        ("memory_growth", False, "--set memory_growth=false"),
        ("placement", Placement.GREEDY, "--set placement=greedy"),
    ],
)
def test_options_are_written_as_they_are_given(name, value, words):
    assert " ".join(option_words(name, value)) == words
    assert words.removeprefix("--no-").removeprefix("--").startswith(option_name(name).removeprefix("--"))
