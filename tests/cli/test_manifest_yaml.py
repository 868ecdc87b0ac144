"""The text of a manifest: kubectl reads it with Go's rules, in which more is a number or a boolean than for PyYAML."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tfdist.cli.manifest_yaml import to_yaml
from tfdist.launch.errors import TfdistError

GO = re.compile(
    r"""[-+]?[0-9_]+ | [-+]?0[box][0-9a-f_]+                            # strconv.ParseInt without underscores, base 0
    | [-+]?([.][0-9_]+ | [0-9_]+([.][0-9_]*)?)(e[-+]?[0-9_]+)?          # strconv.ParseFloat
    | [-+]?[.]inf | [.]nan | ~ | << | y | n | yes | no | on | off | true | false | null
    | ([0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?)?""",
    re.VERBOSE | re.IGNORECASE,
)
"""Plain text that go-yaml (resolve.go of v2 and v3) may read as something else than a string."""


def written(text):
    """The scalar of a string."""
    document = to_yaml([{"value": text}])
    assert list(yaml.safe_load_all(document)) == [{"value": text}]
    assert document.startswith("---\nvalue: ")
    return document.removeprefix("---\nvalue: ").removesuffix("\n")


QUOTED = [
    "", "~", "null", "NULL", "y", "Y", "n", "yes", "No", "on", "OFF", "true", "False", "=", "<<", "<", "-", "--", "---",
    "0", "-1", "+1", "1_000", "007", "0o17", "0b11", "0x1F", "-0x1f", "12:30", "1.5", ".5", "1.", "1e3", "1e-3",
    "1e-05", "1.5e3", "12e5", "12345e67", "1E5", ".inf", "-.INF", ".NaN", "2026-01-01", "2026-01-01T00:00:00Z", "v=1",
    "- a", "a: b", "a:", "a #b", "#a", "*a", "&a", "!a", "{a}", "[a]", "a, b", "? a", "@a", "`a", "%a", "|", ">", " a",
    "a ", "a b", "a\tb", "a\n", "a\n---\nb", "a\r", "\x00", "\x1b[0m", "\x7f", "\x85", "\ufeff", "it's", 'a"b', "a\\b",
    "it's\n$(A)", "caf\u00e9", "\u2028", "\U0001f600", '{"a": 1}',
]  # fmt: skip


@pytest.mark.parametrize("text", QUOTED)
def test_what_is_not_plainly_a_word_is_in_quotes_and_in_one_line(text):
    assert re.fullmatch(r"'.*'|\".*\"", written(text))


@pytest.mark.parametrize(
    "text",
    ["training", "kubernetes.io/x", "registry/tfdist:1", "/tmp/runs", "--learning-rate", "gs://b/c", "A_1", "yn"],
)
def test_a_word_has_no_quotes(text):
    assert written(text) == text


def test_quotes_are_single_where_nothing_needs_an_escape():
    assert written('{"a": 1}') == """'{"a": 1}'"""
    assert written("it's\n") == r'''"it's\n"'''


@given(st.text() | st.from_regex(GO, fullmatch=True) | st.text(alphabet="0123456789eEboxXf_.+-:~yn'\"# \n"))
def test_any_string_stays_one(text):
    scalar = written(text)
    assert "\n" not in scalar  # kubectl splits documents before it reads quotes
    assert scalar[0] in "'\"" or not GO.fullmatch(scalar)


def test_other_values_are_not_strings():
    assert to_yaml([{"a": 1, "b": True, "c": None, "d": ["x", 2]}, {}]) == (
        "---\na: 1\nb: true\nc: null\nd:\n- x\n- 2\n--- {}\n"
    )


def test_bytes_that_are_not_utf_8_are_refused():
    with pytest.raises(TfdistError, match=r"^'caf\\udce9': not valid UTF-8; use UTF-8, as Kubernetes"):
        to_yaml([{"value": "caf\udce9"}])
