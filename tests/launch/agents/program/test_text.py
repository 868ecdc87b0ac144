import pytest

from tfdist.launch.agents.program.text import end_of_characters, nests_deeper


@pytest.mark.parametrize(("levels", "deeper"), [(3, True), (4, False), (9, False)])
def test_nesting_of_an_event_is_limited(levels, deeper):
    assert nests_deeper({"a": [{"b": [1, "text", {}]}]}, levels) is deeper


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
