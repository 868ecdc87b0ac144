import pytest

from tfdist.launch.text import (
    counted,
    did_you_mean,
    duration,
    is_utf8,
    labelled,
    last_line,
    option_of,
    plain,
    shortened,
    signal_name,
)


def test_a_long_list_is_shortened_and_names_are_not_repeated():
    assert shortened(["a", "b", "a"]) == "a, b"
    assert shortened(f"h{number}" for number in range(9)) == "h0, h1, h2, h3 and 5 more"
    assert shortened(["a", "b", "c"], most=1) == "a and 2 more"
    assert shortened([]) == ""


def test_the_last_line_has_no_space_around_it():
    assert last_line("  first\n last \n\n") == "last"
    assert last_line("only") == "only"
    assert last_line(" \n") == ""


def test_a_signal_without_a_name_is_a_number():
    assert [signal_name(number) for number in (15, 40)] == ["SIGTERM", "signal 40"]


def test_one_is_singular():
    assert [counted(number, "round") for number in (0, 1, 2)] == ["0 rounds", "1 round", "2 rounds"]


def test_a_label_is_not_repeated():
    assert labelled("failed", "exit code 1") == "failed: exit code 1"
    assert labelled("interrupted", "interrupted by SIGINT") == "interrupted by SIGINT"


def test_a_typo_is_answered_with_the_nearest_choice_and_all_choices():
    assert did_you_mean("rign", ["auto", "ring"]) == "did you mean ring? Choose from auto, ring"
    assert did_you_mean("NCCL", ["ring", "nccl"]) == "did you mean nccl? Choose from ring, nccl"
    assert did_you_mean("zzz", ["auto", "ring"]) == "choose from auto, ring"


@pytest.mark.parametrize(
    ("seconds", "expected"), [(48.2, "48 s"), (745, "12 min"), (3900, "65 min"), (7500, "2 h 05 min")]
)
def test_durations_have_units(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    "text",
    [
        "bad\x1b[2J data",
        "bad\x1b]0;title\x07 data",
        "bad\x1bP1$r\x1b\\ data",
        "bad\r data\x08",
        "b\x9bad \u202edata",
        "bad\x7f data",
    ],
)
def test_a_terminal_obeys_nothing_in_a_plain_text(text):
    assert plain(text).replace("bad data", "") == ""


def test_a_plain_text_keeps_lines_tabs_letters_and_bytes_that_are_not_utf_8():
    text = "a\n\tä 漢 \udcff"
    assert plain(text) == text


def test_options_are_written_as_they_are_given():
    assert option_of("timeout_collective_s", 3) == "--timeout-collective 3"
    assert (option_of("sync", True), option_of("memory_growth", False)) == ("--sync", "--no-memory-growth")


def test_bytes_that_are_not_utf8_are_found():
    assert is_utf8("café \U0001f600")
    assert not is_utf8(b"caf\xe9".decode("utf-8", "surrogateescape"))
