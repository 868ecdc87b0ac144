import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.launch.text import (
    KEPT_CHARACTERS,
    RESET,
    ago,
    check_name,
    counted,
    did_you_mean,
    duration,
    has_controls,
    is_utf8,
    last_line,
    one_line,
    plain,
    replace_surrogates,
    shorten,
    shortened,
    signal_name,
    visible,
)

KERAS_2 = " 1/50 [..........]" + "".join(
    "\b" * 18 + "\r" + f"{step:2d}/50 [" + "=" * (step // 5) + "." * (10 - step // 5) + "]" for step in range(2, 51)
)
KERAS_3 = "".join(f"\r\x1b[1m{step:2d}/50\x1b[0m \x1b[32m{'━' * step}\x1b[0m\x1b[37m\x1b[0m" for step in range(1, 51))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain", "plain"),
        ("windows\r", "windows"),
        ("10%\r20%\r100%", "100%"),
        ("100%\r20%", "20%%"),
        ("100%\r\x1b[K20%", "20%"),
        ("100%\r\x1b[2K20%", "20%"),
        ("|\b/\b-\b\\\b", "\\"),
        ("\b\b\b\r", ""),
        ("abc\b\bX", "aXc"),
        ("\x1b[1A\x1b[5;10Hup\x1b]0;title\x07", "up"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\rlonger\r ", " onger"),
        ("cut \x1b", "cut"),
        ("cut \x1b[3", "cut"),
        ("cut \x1b]0;tit", "cut"),
        ("a\x9b31mb\x9d0;t\x9cc\x90\x85", "a31mb0;tc"),
        ("bell\a \x0eshift\x0f \x7f\x00nul\x0b\x0c", "bell shift nul"),
        ("\u202eabc\u202c \u2066x\u2069 \u200e\u200f\u061c\u2028\u2029y", "abc x y"),
        ("\x1b(0lines\x1b(B \x1b#8 \x1bcreset", "lines  reset"),
        ("a\tb\x1b[m\tc", "a\tb\tc"),
        (KERAS_2, "50/50 [==========]"),
        (KERAS_3, "50/50 " + "━" * 50),
    ],
)
def test_a_line_is_what_a_terminal_would_show(line, shown):
    assert visible(line, colors=False) == shown


def test_colors_are_kept_and_reset_on_request():
    assert visible("\x1b[31mred", colors=True) == "\x1b[31mred" + RESET
    assert visible("\x1b[31mold\rnew\x1b[5C", colors=True) == "new"
    assert visible("\x1b[38;5;1mred\x1b[4:3mline\x1b[0m", colors=True) == "\x1b[38;5;1mred\x1b[4:3mline" + RESET


@pytest.mark.parametrize(
    "escape", ["\x1b[>4;1m", "\x1b[?4m", "\x1b[1 m", "\x9b31m", "\x1b[2J", "\x1b[31", "\x1b]8;;x\a"]
)
def test_only_colors_are_kept(escape):
    assert "\x1b" not in visible(f"{escape}é", colors=True)


@given(st.text(st.sampled_from("a\t \r\b\a\x1b[]0;1mK\\>\x9b\x9d\x9c\u202e\u2028é")), st.booleans())
def test_nothing_but_colors_reaches_the_terminal(line, colors):
    shown = visible(line, colors)
    assert not has_controls(re.sub(r"\x1b\[[0-9;:]*m", "", shown) if colors else shown)


def test_only_the_last_states_of_an_endless_progress_bar_are_kept():
    line = "".join(f"\r{number} of many" for number in range(100_000))
    assert len(shorten(line)) <= KEPT_CHARACTERS
    assert visible(line, colors=False) == "99999 of many"
    assert shorten("x" * 100_000) == "x" * 100_000


def test_a_long_list_is_shortened_and_names_are_not_repeated():
    assert shortened(["a", "b", "a"]) == "a, b"
    assert shortened(f"h{number}" for number in range(9)) == "h0, h1, h2, h3 and 5 more"
    assert shortened(["a", "b", "c"], most=1) == "a and 2 more"
    assert shortened([]) == ""


def test_the_last_line_has_no_space_around_it():
    assert last_line("  first\n last \n\n") == "last"
    assert last_line("only") == "only"
    assert last_line(" \n") == ""


def test_a_text_of_others_in_a_message_has_no_line_breaks():
    assert one_line("a\ntfdist: ok\r\n\tb\u2028c\x0bd") == "a tfdist: ok  b c d"
    assert one_line("") == one_line("\n") == ""
    assert one_line("two  spaces") == "two  spaces"


def test_a_signal_without_a_name_is_a_number():
    assert [signal_name(number) for number in (15, 40)] == ["SIGTERM", "signal 40"]


def test_one_is_singular():
    assert [counted(number, "round") for number in (0, 1, 2)] == ["0 rounds", "1 round", "2 rounds"]


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
