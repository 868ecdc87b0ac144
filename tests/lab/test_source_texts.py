import ast
from textwrap import dedent

import pytest

from lab.source_texts import Code, callee


def texts(folder, source):
    """The texts of the argument of `say` in a module."""
    (folder / "some").mkdir()
    (folder / "some" / "part.py").write_text(dedent(source))
    code = Code(folder, ["some"])
    (call,) = (each for each in code.calls if callee(each.node) == "say")
    return code.texts((call.node.args[0], call.scope))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("say('two  words')", ["two words"]),
        ("say(f'no {path.name!r} in {host}')", ["no '<path>' in <host>"]),
        ("LEAST = 4\nsay(f'at least {LEAST:g}')", ["at least 4"]),
        ("say(f'{len(names)} of {names[0]}')", ["<number> of <names>"]),
        ("say(f'{a}: ' + ('give one' if b else 'give two'))", ["<a>: give one", "<a>: give two"]),
    ],
)
def test_what_is_not_known_becomes_its_name(source, expected, tmp_path):
    assert texts(tmp_path, source) == expected


def test_variables_that_are_set_together_stay_together(tmp_path):
    source = """
    def check(a):
        what, fix = "the first thing", "repair the first"
        if a:
            what = "the other thing"
            fix = "repair the other"
        say(f"{what}; {fix}")
    """
    assert set(texts(tmp_path, source)) == {"the first thing; repair the first", "the other thing; repair the other"}


def test_a_branch_that_excludes_the_line_does_not_count(tmp_path):
    source = """
    def check(a):
        if a:
            why = "it is too long"
        else:
            why = "it is too short"
            say(f"no: {why}")
            why = "it is neither"
    """
    assert texts(tmp_path, source) == ["no: it is too short"]


def test_rows_of_a_loop_over_a_table(tmp_path):
    source = """
    ROWS = (("one", "give the first"), ("two", "give the second"))

    def check():
        for name, fix in (*ROWS, ("three", "give the third")):
            say(f"wrong: {fix}")
    """
    assert texts(tmp_path, source) == ["wrong: give the first", "wrong: give the second", "wrong: give the third"]


def test_functions_and_their_arguments(tmp_path):
    source = """
    def hint(kind):
        return f"look for a {kind} there"

    def check(reason):
        say(f"bad: {reason}, {hint('red door')}")

    check("no such door")
    check("the door is shut")
    """
    expected = ["bad: no such door, look for a red door there", "bad: the door is shut, look for a red door there"]
    assert texts(tmp_path, source) == expected


def test_fields_of_objects_of_one_class(tmp_path):
    source = """
    class Refusal:
        reason: str
        instead: str

    def refuse(refusal: Refusal | None):
        say(f"{refusal.reason}; {refusal.instead}")

    Refusal("it does not fit", "use a larger one")
    Refusal("it is not there", instead="make it first")
    """
    assert texts(tmp_path, source) == ["it does not fit; use a larger one", "it is not there; make it first"]


def test_a_prefix_that_callers_pass_stays_a_name(tmp_path):
    source = """
    def check(source):
        say(f"{source}: not a number")

    check("the first file")
    check("the second file")
    """
    assert texts(tmp_path, source) == ["<source>: not a number"]


def test_recursion_ends(tmp_path):
    source = """
    def why(n):
        return f"{why(n - 1)} and so on" if n else "it is so"

    say(f"no: {why(3)}")
    """
    assert "no: it is so" in texts(tmp_path, source)


def test_callee():
    assert callee(ast.parse("a.b(1)", mode="eval").body) == "b"
    assert callee(ast.parse("a", mode="eval").body) == ""
