import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.selection import read_hosts

from .samples import names


def test_without_either_option_there_are_no_hosts():
    assert read_hosts(None, None) == ()


def test_include_and_exclude_select_in_order(tmp_path):
    hostfile = tmp_path / "hosts.txt"
    hostfile.write_text("a\nb\n")
    every = "node1,node2,big1,big2"
    assert names(read_hosts(every, None, ["node*"])) == ["node1", "node2"]
    assert names(read_hosts(every, None, ["big*", "node1"])) == ["node1", "big1", "big2"]
    assert names(read_hosts(every, None, [], ["*1"])) == ["node2", "big2"]
    assert names(read_hosts(None, hostfile, ["?"], ["a"])) == ["b"]


def test_patterns_that_match_no_host_are_refused():
    with pytest.raises(TfdistError, match="--include x --exclude b: no host is left of a, b; change the patterns"):
        read_hosts("a,b", None, ["x"], ["b"])


def test_an_empty_list_is_refused_and_not_taken_for_this_machine():
    with pytest.raises(TfdistError, match="no hosts"):
        read_hosts("", None)
