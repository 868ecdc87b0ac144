import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, integers, lists, sampled_from, text

from tfdist.bench.predict.quantities import parse_bandwidth, parse_bytes, parse_devices, parse_latency
from tfdist.launch.errors import TfdistError

POSITIVE = integers(1, 10**6)
PREFIXES = {"": 1, "k": 1e3, "K": 1e3, "m": 1e6, "M": 1e6, "G": 1e9, "T": 1e12}


@given(POSITIVE, sampled_from(sorted(PREFIXES)), sampled_from(["bit", "bit/s", "Bit/s", "bps", "b/s", "bitps"]))
def test_bits_are_eighths_of_bytes(number: int, prefix: str, unit: str) -> None:
    assert parse_bandwidth(f"{number}{prefix}{unit}", "--x") == pytest.approx(number * PREFIXES[prefix] / 8)


@given(POSITIVE, sampled_from(sorted(PREFIXES)), sampled_from(["B/s", "B", "Bps"]))
def test_a_capital_b_is_bytes(number: int, prefix: str, unit: str) -> None:
    assert parse_bandwidth(f"{number} {prefix}{unit}", "--x") == pytest.approx(number * PREFIXES[prefix])


@given(floats(0.001, 1e6), sampled_from([("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("ns", 1e-9)]))
def test_latencies(number: float, unit: tuple[str, float]) -> None:
    assert parse_latency(f"{number:f}{unit[0]}", "--x") == pytest.approx(round(number, 6) * unit[1])


@settings(max_examples=50)
@given(text())
def test_no_text_raises_anything_but_a_sentence_with_its_value(words: str) -> None:
    for parse in (parse_bandwidth, parse_latency, parse_bytes, parse_devices):
        said = ""
        try:
            assert parse(words, "--x") is not None
        except TfdistError as error:
            said = str(error)
        assert said == "" or said.startswith(f"--x {words}: give")


@pytest.mark.parametrize("wrong", ["", "10", "10Gbyte", "-1Gbit", "0Gbit", "1e3Mbit", "Gbit", "10Gbit/h", "nan"])
def test_wrong_bandwidths(wrong: str) -> None:
    with pytest.raises(TfdistError, match=f"^--bandwidth {wrong}: give a bandwidth, as 10Gbit"):
        parse_bandwidth(wrong, "--bandwidth")


@pytest.mark.parametrize("wrong", ["50", "us", "-1us", "50 minutes", "1e-3s"])
def test_wrong_latencies(wrong: str) -> None:
    with pytest.raises(TfdistError, match="one-way latency"):
        parse_latency(wrong, "--latency")


def test_sizes() -> None:
    assert (
        parse_bytes("14.02MB", "--x") == parse_bytes("14020 k", "--x") == parse_bytes("14020000", "--x") == 14_020_000
    )


@given(lists(integers(1, 10_000), min_size=1, unique=True).map(sorted))
def test_lists_of_devices(numbers: list[int]) -> None:
    assert parse_devices(", ".join(map(str, numbers)), "--x") == tuple(numbers)


def test_dots_continue_the_ratio() -> None:
    assert parse_devices("1,2,4,...,512", "--x") == tuple(2**k for k in range(10))
    assert parse_devices("2,6,...,60", "--x") == (2, 6, 18, 54, 60)
    assert parse_devices("1,2,...,8,12", "--x") == (1, 2, 4, 8, 12)


@pytest.mark.parametrize(
    "wrong", ["", "0", "4,2", "1,1", "1,...,8", "...,8", "1,2,...", "2,3,...,9", "1,2,x", "1,-2", "10001"]
)
def test_wrong_lists_of_devices(wrong: str) -> None:
    with pytest.raises(TfdistError, match=r"as 1,2,4,8 or 1,2,4,\.\.\.,512"):
        parse_devices(wrong, "--devices")
