import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.console.visible import KEPT_CHARACTERS, RESET, shorten, visible
from tfdist.launch.text import has_controls

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
