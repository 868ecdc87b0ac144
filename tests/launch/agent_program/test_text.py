import pytest

from tfdist.launch.agent_program.text import end_of_characters, why_refused

INTEGER = "an integer in it needs more than 64 bits; send it as text"
TEXT = "a text in it is not Unicode (it has a lone surrogate)"


@pytest.mark.parametrize(("levels", "deeper"), [(3, True), (4, False), (9, False)])
def test_nesting_of_an_event_is_limited(levels, deeper):
    refusal = why_refused({"a": [{"b": [1, "text", "last"]}]}, levels)
    assert refusal == (f"it has more than {levels} levels of lists and objects" if deeper else "")


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        (2**63 - 1, ""),
        (2**63, INTEGER),
        (-(2**63), ""),
        (-(2**63) - 1, INTEGER),
        (1e300, ""),
        (True, ""),
        ("\U0001f600\udc80\udcff\0", ""),
        ("a" + chr(0xD83D), TEXT),
        (chr(0xDC7F), TEXT),
        (chr(0xDD00), TEXT),
    ],
)
def test_only_numbers_and_texts_that_later_steps_can_handle_are_accepted(value, refusal):
    assert why_refused(value, 0) == refusal
    assert why_refused({"event": "x", "a": [{"b": [value]}]}, 9) == refusal
    assert why_refused({"a": {str(value): 1}}, 9) == (TEXT if refusal == TEXT else "")


@pytest.mark.parametrize(
    ("text", "length"),
    [("", 0), ("a", 1), ("é", 2), ("a█", 4), ("🙂", 4), ("a" * 5, 5)],
)
def test_whole_characters_are_not_cut(text, length):
    assert end_of_characters(text.encode()) == length


@pytest.mark.parametrize("character", ["é", "█", "🙂"])
def test_an_incomplete_character_at_the_end_is_left_for_later(character):
    for cut in range(1, len(character.encode())):
        assert end_of_characters(b"ab" + character.encode()[:cut]) == 2


@pytest.mark.parametrize("text", [b"a\xff", b"a\x96\x96\x96\x96", b"\x96", b"a\xc3\xa9\x96"])
def test_bytes_that_are_not_utf_8_are_not_left_for_later(text):
    assert end_of_characters(text) == len(text)
