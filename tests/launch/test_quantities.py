import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.launch.quantities import parse_seconds, parse_size, parse_sizes, size_text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("2.5", 2.5),
        ("10m", 600),
        ("10 min", 600),
        ("1h", 3600),
        ("500ms", 0.5),
        (" 1H ", 3600),
        ("30d", 2_592_000),
    ],
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text, "--turn") == seconds


@pytest.mark.parametrize("text", ["", "s", "5 sec", "nan", "inf", "1e3", "10m5s", "1_0"])
def test_something_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(TfdistError, match="give a duration, as 5s, 10m, 1h or 30d"):
        parse_seconds(text, "--turn")


@pytest.mark.parametrize("text", ["0", "-1s", "0.0h"])
def test_a_duration_is_positive(text: str) -> None:
    with pytest.raises(TfdistError, match=f"--budget {text}: must be positive"):
        parse_seconds(text, "--budget")


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1K:8K", (1024, 2048, 4096, 8192)),
        ("1K:1M:16", (1024, 16384, 262144)),
        ("1K:5K", (1024, 2048, 4096)),
        ("1M", (1 << 20,)),
        ("1k, 3MB,2GiB", (1024, 3 << 20, 2 << 30)),
        ("100:100", (100,)),
    ],
)
def test_notations_of_the_nccl_tests(text, sizes):
    assert parse_sizes(text) == sizes


def test_the_default_has_19_sizes():
    assert len(parse_sizes("1K:256M")) == 19


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1K:", "--sizes : give bytes, for example 1K, 64K or 256M"),
        ("", "--sizes : give bytes"),
        ("many", "--sizes many: give bytes"),
        ("-1K", "--sizes -1K: give bytes"),
        ("0", "--sizes 0: must be from 1 byte"),
        ("5T", "--sizes 5T: give bytes"),
        ("4M:1K", "--sizes 4M:1K: ends below its first size; write it as 1K:4M"),
        ("1K:4M:1", "--sizes 1K:4M:1: the factor is '1'; make it an integer of at least 2"),
        ("1K:4M:x", "--sizes 1K:4M:x: the factor is 'x'"),
        ("2048G", "--sizes 2048G: must be from 1 byte to 1024G"),
    ],
)
def test_other_notations_are_refused_with_the_way_out(text, sentence):
    with pytest.raises(TfdistError) as error:
        parse_sizes(text)
    assert str(error.value).startswith(sentence)


@given(st.integers(1, 1 << 40))
def test_the_text_of_a_size_is_that_size(size):
    assert parse_size(size_text(size), "--sizes") == size
