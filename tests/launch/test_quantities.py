import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.launch.quantities import parse_bandwidth, parse_counts, parse_seconds, parse_size, parse_sizes, size_text


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
        (f"1K:4M:{'9' * 5000}", "--sizes 1K:4M:9"),
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


POSITIVE = st.integers(1, 10**6)
PREFIXES = {"": 1, "k": 1e3, "K": 1e3, "m": 1e6, "M": 1e6, "G": 1e9, "T": 1e12}


@given(POSITIVE, st.sampled_from(sorted(PREFIXES)), st.sampled_from(["bit", "bit/s", "Bit/s", "bps", "b/s", "bitps"]))
def test_bits_are_eighths_of_bytes(number: int, prefix: str, unit: str) -> None:
    assert parse_bandwidth(f"{number}{prefix}{unit}", "--x") == pytest.approx(number * PREFIXES[prefix] / 8)


@given(POSITIVE, st.sampled_from(sorted(PREFIXES)), st.sampled_from(["B/s", "B", "Bps"]))
def test_a_capital_b_is_bytes(number: int, prefix: str, unit: str) -> None:
    assert parse_bandwidth(f"{number} {prefix}{unit}", "--x") == pytest.approx(number * PREFIXES[prefix])


@given(st.floats(0.001, 1e6), st.sampled_from([("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("ns", 1e-9)]))
def test_latencies_have_small_units(number: float, unit: tuple[str, float]) -> None:
    assert parse_seconds(f"{number:f}{unit[0]}", "--x") == pytest.approx(round(number, 6) * unit[1])


@settings(max_examples=50)
@given(st.text())
def test_no_text_raises_anything_but_a_sentence_with_its_value(words: str) -> None:
    for parse in (parse_bandwidth, parse_seconds, parse_size, parse_counts):
        said = ""
        try:
            assert parse(words, "--x") is not None
        except TfdistError as error:
            said = str(error)
        assert said == "" or said.startswith(f"--x {words}: ")


@pytest.mark.parametrize("wrong", ["", "10", "10Gbyte", "-1Gbit", "0Gbit", "1e3Mbit", "Gbit", "10Gbit/h", "nan"])
def test_wrong_bandwidths(wrong: str) -> None:
    with pytest.raises(TfdistError, match=f"^--bandwidth {wrong}: give a bandwidth, as 10Gbit"):
        parse_bandwidth(wrong, "--bandwidth")


def test_sizes_may_have_a_fraction() -> None:
    assert parse_size("13.5M", "--x") == 27 << 19


@given(st.lists(st.integers(1, 10_000), min_size=1, unique=True).map(sorted))
def test_lists_of_devices(numbers: list[int]) -> None:
    assert parse_counts(", ".join(map(str, numbers)), "--x") == tuple(numbers)


def test_dots_continue_the_ratio() -> None:
    assert parse_counts("1,2,4,...,512", "--x") == tuple(2**k for k in range(10))
    assert parse_counts("2,6,...,60", "--x") == (2, 6, 18, 54, 60)
    assert parse_counts("1,2,...,8,12", "--x") == (1, 2, 4, 8, 12)


@pytest.mark.parametrize(
    "wrong", ["", "0", "4,2", "1,1", "1,...,8", "...,8", "1,2,...", "2,3,...,9", "1,2,x", "1,-2", "10001"]
)
def test_wrong_lists_of_devices(wrong: str) -> None:
    with pytest.raises(TfdistError, match=r"as 2,4,8 or 2,4,8,\.\.\.,512"):
        parse_counts(wrong, "--devices")
