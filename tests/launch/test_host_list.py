"""Lists of host names."""

import pytest
from hypothesis import given

from tfdist.launch.errors import TfdistError
from tfdist.launch.host_list import expand, node_names, place_in

from .hosts.samples import ANY_TEXT


@pytest.mark.parametrize(
    ("entry", "expanded"),
    [
        ("node[01-03,10]", ["node01", "node02", "node03", "node10"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[3,1,2]", ["n3", "n1", "n2"]),
        ("r[1-2]n[1-2].lan:4", ["r1n1.lan:4", "r1n2.lan:4", "r2n1.lan:4", "r2n2.lan:4"]),
        ("[::1]", ["[::1]"]),
        ("plain", ["plain"]),
    ],
)
def test_ranges_expand_in_order_with_leading_zeros(entry, expanded):
    assert expand(entry, "--hosts") == expanded


def test_a_list_of_nodes_has_names_only():
    assert node_names("gpu[09-10,03],login1", "NODES") == ("gpu09", "gpu10", "gpu03", "login1")


@pytest.mark.parametrize("text", ["a:2", "me@a", "-a", "a b", "$(x)", "n[1-", "a\x1b", "::1"])
def test_a_list_with_anything_else_is_refused(text):
    with pytest.raises(TfdistError, match=r"^NODES .*: invalid name .*; it must be a list of nodes, as "):
        node_names(text, "NODES")


@given(ANY_TEXT)
def test_any_list_of_nodes_gives_names_or_an_error(text):
    try:
        names = node_names(text, "NODES")
    except TfdistError:
        return
    assert names
    assert all(name and name == name.strip() and not name.startswith("-") for name in names)


@pytest.mark.parametrize("text", ["2", "-1", "x", "", "\u00b2", "9" * 30])
def test_a_place_that_no_list_has_is_refused(text):
    assert place_in({"RANK": "1"}, "RANK", 2, "tasks") == 1
    with pytest.raises(TfdistError, match=f"RANK={text}: not one of the 2 tasks"):
        place_in({"RANK": text}, "RANK", 2, "tasks")
