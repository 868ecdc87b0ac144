import pytest

from tfdist.launch.console.visible import KEPT_CHARACTERS, RESET, has_controls, shorten, visible

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
        (KERAS_2, "50/50 [==========]"),
        (KERAS_3, "50/50 " + "━" * 50),
    ],
)
def test_a_line_is_what_a_terminal_would_show(line, shown):
    assert visible(line, colors=False) == shown


def test_colors_are_kept_and_reset_on_request():
    assert visible("\x1b[31mred", colors=True) == "\x1b[31mred" + RESET
    assert visible("\x1b[31mold\rnew\x1b[5C", colors=True) == "new"


def test_only_the_last_states_of_an_endless_progress_bar_are_kept():
    line = "".join(f"\r{number} of many" for number in range(100_000))
    assert len(shorten(line)) <= KEPT_CHARACTERS
    assert visible(line, colors=False) == "99999 of many"
    assert shorten("x" * 100_000) == "x" * 100_000


def test_ordinary_text_has_no_controls():
    assert not has_controls("a\tb\n")
    assert all(map(has_controls, "\r\b\x1b"))
