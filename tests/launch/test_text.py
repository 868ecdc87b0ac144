from tfdist.launch.text import counted, shortened


def test_a_long_list_is_shortened_and_names_are_not_repeated():
    assert shortened(["a", "b", "a"]) == "a, b"
    assert shortened(f"h{number}" for number in range(9)) == "h0, h1, h2, h3 and 5 more"
    assert shortened(["a", "b", "c"], most=1) == "a and 2 more"
    assert shortened([]) == ""


def test_one_is_singular():
    assert [counted(number, "round") for number in (0, 1, 2)] == ["0 rounds", "1 round", "2 rounds"]
