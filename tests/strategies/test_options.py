"""How options are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.strategies.options import KINDS, Placement, option_name, option_words, parse_partitioner


@given(st.sampled_from(KINDS), st.integers(1, 2**40))
def test_every_partitioner_is_parsed(kind, size):
    assert parse_partitioner(f"{kind}:{size}") == (kind, size)


def test_none_is_none():
    assert parse_partitioner("none") is None


@pytest.mark.parametrize(
    "text", ["", "fixed", "fixed:", "fixed:0", "fixed:-1", "fixed:1.5", "fixed:²", "odd:2", "None"]
)
def test_other_text_is_refused_with_the_choices(text):
    with pytest.raises(TfdistError, match="max-size:BYTES"):
        parse_partitioner(text)


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
