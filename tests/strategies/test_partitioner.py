"""--variable-partitioner."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.strategies.partitioner import KINDS, Partitioner, parse_partitioner


@given(st.sampled_from(KINDS), st.integers(1, 2**40))
def test_every_partitioner_is_parsed(kind, size):
    assert parse_partitioner(f"{kind}:{size}") == Partitioner(kind, size)


def test_none_is_none():
    assert parse_partitioner("none") is None


@pytest.mark.parametrize(
    "text", ["", "fixed", "fixed:", "fixed:0", "fixed:-1", "fixed:1.5", "fixed:²", "odd:2", "None"]
)
def test_other_text_is_refused_with_the_choices(text):
    with pytest.raises(TfdistError, match="max-size:BYTES"):
        parse_partitioner(text)
