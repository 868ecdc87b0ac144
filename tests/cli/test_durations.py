import pytest

from tfdist.cli.durations import parse_seconds
from tfdist.launch.errors import TfdistError


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
    assert parse_seconds(None, "--turn") is None


@pytest.mark.parametrize("text", ["", "s", "5 sec", "nan", "inf", "1e3", "10m5s", "1_0"])
def test_something_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(TfdistError, match="give a duration, as 5s, 10m, 1h or 30d"):
        parse_seconds(text, "--turn")


@pytest.mark.parametrize("text", ["0", "-1s", "0.0h"])
def test_a_duration_is_positive(text: str) -> None:
    with pytest.raises(TfdistError, match=f"--budget {text}: must be positive"):
        parse_seconds(text, "--budget")
