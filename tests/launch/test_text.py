import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.launch.text import (
    ago,
    check_name,
    counted,
    did_you_mean,
    duration,
    has_controls,
    is_utf8,
    labelled,
    last_line,
    plain,
    replace_surrogates,
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
        "bad\x0e da\x0fta\x07",
        "bad\x0b d\x0cata",
        "\u200ebad\u200f \u061cdata\u2028\u2029",
        "bad\x1b(0 data\x1bc",
        "bad data\x1b[3",
        "bad data\x1b",
        "bad data\x1b]0;title",
    ],
)
def test_a_terminal_obeys_nothing_in_a_plain_text(text):
    assert plain(text).replace("bad data", "") == ""


def test_a_plain_text_keeps_lines_tabs_letters_and_bytes_that_are_not_utf_8():
    text = "a\n\tä 漢 \udcff"
    assert plain(text) == text


def test_bytes_that_are_not_utf8_are_found():
    assert is_utf8("café \U0001f600")
    assert not is_utf8(b"caf\xe9".decode("utf-8", "surrogateescape"))


@given(st.text())
def test_a_plain_text_has_no_controls_and_stays_as_it_is(text):
    shown = plain(text)
    assert not has_controls(shown)
    assert plain(shown) == shown
    assert not [each for each in shown if each not in "\n\t" and unicodedata.category(each) in ("Cc", "Zl", "Zp")]
    assert not {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"} & set(
        map(unicodedata.bidirectional, shown)
    )
    if not has_controls(text):
        assert shown == text


def test_a_string_without_an_end_hides_no_other_line():
    assert plain("a\x1b]0;title\nb") == "a\nb"


def test_ordinary_text_has_no_controls():
    assert not has_controls("a\tb\n")
    assert not has_controls("ä 漢 \u200b \udcff\n")
    assert all(map(has_controls, "\r\b\a\x0e\x0f\x1b\x7f\x80\x9b\x9d\u061c\u200e\u202e\u2028\u2069"))


def test_bytes_that_are_not_utf8_become_replacement_characters():
    assert replace_surrogates("caf\udce9 \ud800\udfff é") == "caf\ufffd \ufffd\ufffd é"


@pytest.mark.parametrize("text", ["x\ncommand #", "a\tb", "a\rb", "\x1b[2J", "a\x9bb", "a\u202eb", "a\u2028b", "a\x00"])
def test_a_name_has_no_control_characters_and_the_message_shows_them_escaped(text):
    with pytest.raises(TfdistError) as raised:
        check_name("--name", text)
    assert str(raised.value) == f"--name {text!r}: has a line break or another control character; remove it"
    assert not has_controls(str(raised.value))


@pytest.mark.parametrize("text", ["", "it's; a name", "Größe 漢 \U0001f600", "caf\udce9"])
def test_other_names_are_accepted(text):
    check_name("--name", text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "just now"), (59, "just now"), (60, "1 min ago"), (7300, "2 h ago"), (2e5, "2 d ago")]
)
def test_ages(seconds, text):
    assert ago(seconds) == text
