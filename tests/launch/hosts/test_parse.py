import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.parse import parse_hostfile, parse_hosts, read_hosts, with_groups
from tfdist.launch.text import has_controls

from .samples import ANY_TEXT, names, sane


@pytest.fixture
def hostfile(tmp_path):
    """Return a function that writes a hostfile."""

    def write(text):
        path = tmp_path / "hosts.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_a_hostfile_has_one_host_per_line_with_settings_and_comments(hostfile):
    path = hostfile(
        "# two racks, don't move\n"
        "\n"
        "   \t\n"
        "h2 # the big one, it's new\n"
        "me@h1:3   role=worker port=5000\r\n"
        "    # indented\n"
        "[2001:db8::7]:2 addr=[2001:db8::8]\n"
        "h4 slots=4 gpus=0,GPU-ab python=/opt/py/bin/python 'chdir=/data/my work' addr=10.0.0.4"
    )
    assert parse_hostfile(path) == (
        Host("h2"),
        Host("h1", user="me", slots=3, role="worker", port=5000),
        Host("2001:db8::7", slots=2, address="2001:db8::8"),
        Host("h4", slots=4, gpus=("0", "GPU-ab"), python="/opt/py/bin/python", chdir="/data/my work", address="10.0.0.4"),
    )  # fmt: skip


def test_settings_apply_to_all_hosts_of_a_range(hostfile):
    hosts = parse_hostfile(hostfile("node[09-10] slots=2 role=ps\nlast"))
    assert hosts == (Host("node09", slots=2, role="ps"), Host("node10", slots=2, role="ps"), Host("last"))


def test_a_byte_order_mark_is_ignored(hostfile):
    assert names(parse_hostfile(hostfile(b"\xef\xbb\xbfh1\n"))) == ["h1"]


@pytest.mark.parametrize(
    ("text", "line", "messages"),
    [
        ("h1\nh2 color=red\n", 2, ["'color=red'", "slots=", "chdir="]),
        ("h1 fast\n", 1, ["'fast'", "unknown setting"]),
        ("h1\n\n# c\nh2\nh1:2\n", 5, ["duplicate host h1"]),
        ("h1 slots=0\n", 1, ["slots=0", "invalid number of slots '0'"]),
        ("h1\nh2:x\n", 2, ["h2:x", "invalid number of slots 'x'"]),
        ("h1:2 slots=2\n", 1, ["h1:2 already sets the slots; remove slots=2"]),
        ("h1 slots=1 slots=2\n", 1, ["slots= is set twice; remove one"]),
        ("h1\n-h2\n", 2, ["invalid name '-h2'"]),
        ("'-oProxyCommand=touch x'\n", 1, ["invalid name"]),
        ("slots=2\n", 1, ["invalid name 'slots=2'"]),
        ("h1,h2\n", 1, ["invalid name 'h1,h2'"]),
        ("''\n", 1, ["invalid name ''"]),
        ("h1 role=boss\n", 1, ["role=boss", "chief, worker, ps, evaluator"]),
        ("h1 port=0\n", 1, ["port=0", "invalid port '0'; use 1 to 65535"]),
        ("h1 port=70000\n", 1, ["port=70000"]),
        ("h1 gpus=0,0\n", 1, ["gpus=0,0", "list each GPU once"]),
        ("h1 gpus=\n", 1, ["list each GPU once"]),
        ("h1 python=\n", 1, ["empty value"]),
        ("h1 addr=\n", 1, ["invalid address ''"]),
        ("h1 addr=10.0.0.1:22\n", 1, ["invalid address '10.0.0.1:22'", "without a port"]),
        ("h1 'addr=a b'\n", 1, ["invalid address"]),
        ("h[1-2] addr=10.0.0.1\n", 1, ["2 hosts cannot share it; write a line for each"]),
        ("h1\nh2 chdir='/a b\n", 2, ["correct the quotes"]),
    ],
)
def test_an_invalid_line_is_reported_with_file_line_and_value(hostfile, text, line, messages):
    path = hostfile(text)
    with pytest.raises(TfdistError) as caught:
        parse_hostfile(path)
    assert f"--hostfile {path}, line {line}:" in str(caught.value)
    for message in messages:
        assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing but this\n   # and this"])
def test_a_file_without_hosts_is_refused(hostfile, text):
    with pytest.raises(TfdistError, match="no hosts"):
        parse_hostfile(hostfile(text))


def test_a_missing_file_or_a_folder_is_refused(tmp_path):
    for path, why in ((tmp_path / "none.txt", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(TfdistError, match=re.escape(f"--hostfile {path}: {why}")):
            parse_hostfile(path)


def test_a_file_that_is_not_utf_8_is_refused_with_the_line(hostfile):
    path = hostfile(b"h1\nh2\nh\xff3\n")
    with pytest.raises(TfdistError, match=re.escape(f"{path}, line 3: not UTF-8")):
        parse_hostfile(path)
    with pytest.raises(TfdistError, match="not UTF-8"):
        parse_hostfile(hostfile("h1\n".encode("utf-16")))


@given(ANY_TEXT.map(str.encode) | st.binary(max_size=60) | st.just(b"h1 slots=1\n"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_gives_hosts_or_an_error(hostfile, data):
    path = hostfile(data)
    try:
        hosts = parse_hostfile(path)
    except TfdistError:
        return
    assert hosts
    assert all(map(sane, hosts))


@pytest.mark.parametrize(
    "line", ["h1\x1b[2J", "h1 python=/py\x9b", "h1 chdir='/a\tb'", "h\u20281", "m\u202ee@h1", "h1 gpus=\x07"]
)
def test_control_characters_are_refused_and_the_line_is_named(hostfile, line):
    path = hostfile(f"h0\n{line}\n")
    with pytest.raises(TfdistError) as raised:
        parse_hostfile(path)
    assert str(raised.value).startswith(f"--hostfile {path}, line 2: '")
    assert "has a line break or another control character" in str(raised.value)
    assert not has_controls(str(raised.value))


def test_without_either_option_there_are_no_hosts():
    assert read_hosts(None, None) == ()


def test_exclude_selects_in_order(tmp_path):
    hostfile = tmp_path / "hosts.txt"
    hostfile.write_text("a\nb\n")
    every = "node1,node2,big1,big2"
    assert names(read_hosts(every, None, ["node*"])) == ["big1", "big2"]
    assert names(read_hosts(every, None, ["big*", "node1"])) == ["node2"]
    assert names(read_hosts(None, hostfile, ["a"])) == ["b"]


def test_patterns_that_match_no_host_are_refused():
    with pytest.raises(TfdistError, match=r"--exclude a --exclude b\*: no host is left of a, b; change the patterns"):
        read_hosts("a,b", None, ["a", "b*"])


def test_an_empty_list_is_refused_and_not_taken_for_this_machine():
    with pytest.raises(TfdistError, match="no hosts"):
        read_hosts("", None)


def test_a_list_has_hosts_in_order_with_users_and_slots():
    assert parse_hosts("b,a:2, user@c ,d@e:3") == (
        Host("b"), Host("a", slots=2), Host("c", user="user"), Host("e", user="d", slots=3),
    )  # fmt: skip


def test_a_user_may_contain_an_at_sign():
    (host,) = parse_hosts("me@example.org@h1")
    assert (host.user, host.name, host.target) == ("me@example.org", "h1", "me@example.org@h1")


def test_ipv6_in_brackets_with_and_without_slots():
    hosts = parse_hosts("[::1],[2001:db8::7]:2,me@[fe80::1%eth0]")
    assert hosts == (Host("::1"), Host("2001:db8::7", slots=2), Host("fe80::1%eth0", user="me"))


def test_commas_inside_a_range_do_not_separate_hosts():
    assert names(parse_hosts("a,node[01-02,05]:2,b")) == ["a", "node01", "node02", "node05", "b"]
    assert [host.slots for host in parse_hosts("n[1-2]:2,b")] == [2, 2, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no hosts"),
        (" , ", "no hosts"),
        ("a,,b", "empty entry; remove the extra comma"),
        ("a,b,", "empty entry"),
        ("a,b:2,a", "duplicate host a"),
        ("a,me@a", "duplicate host a"),
        ("Node1,node1", "duplicate host node1"),
        ("n[1-3],n2", "duplicate host n2"),
        ("a:0", "invalid number of slots '0'"),
        ("a:-1", "invalid number of slots '-1'"),
        ("a:two", "invalid number of slots 'two'"),
        ("a:", "invalid number of slots ''"),
        ("a:1.5", "invalid number of slots '1.5'"),
        ("a:²", "invalid number of slots '²'"),
        ("a:1000000000", "use 1 to 10000"),
        ("a:" + "9" * 5000, "use 1 to 10000"),
        ("-oProxyCommand=x", "invalid name"),
        ("-a", "invalid name '-a'"),
        ("me@-a", "invalid name '-a'"),
        ("-me@a", "invalid name '-me'"),
        ("@a", "invalid name ''"),
        ("me@", "invalid name ''"),
        (":2", "invalid name ''"),
        ("a b", "invalid name 'a b'"),
        ("a;b", "invalid name 'a;b'"),
        ("$(x)", "invalid name"),
        ("a=b", "invalid name 'a=b'"),
        ("a\x00b", "invalid name"),
        ("::1", "put an IPv6 address in brackets"),
        ("2001:db8::7:2", "put an IPv6 address in brackets"),
        ("a:2:3", "not [user@]host[:slots]"),
        ("[::1]2", "not [user@]host[:slots]"),
        ("[a:b]", "use [user@]host[:slots]"),
        ("[h1]", "invalid name"),
        ("n[3-1]", "the range 3-1 is descending; write 1-3"),
        ("n[1-99999999]", "more than 10000 hosts"),
        ("n[1-999]m[1-999]", "more than 10000 hosts"),
        ("n[" + "9" * 5000 + "]", "invalid name"),
        ("n[1-", "invalid name"),
        ("n[a-b]", "invalid name"),
    ],
)
def test_an_invalid_list_is_reported_with_option_and_value(text, message):
    with pytest.raises(TfdistError) as caught:
        parse_hosts(text)
    assert "--hosts" in str(caught.value)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_endpoint_has_an_ipv6_address_in_brackets():
    assert Host("h", "10.0.0.1").endpoint(7) == "10.0.0.1:7"
    assert Host("h", "2001:db8::7").endpoint(7) == "[2001:db8::7]:7"


@given(ANY_TEXT)
def test_any_list_gives_hosts_or_an_error(text):
    try:
        hosts = parse_hosts(text)
    except TfdistError:
        return
    assert hosts
    assert len({host.name for host in hosts}) == len(hosts)
    assert all(map(sane, hosts))


@pytest.mark.parametrize("name", ["h\x1b1", "h\x9b1", "me\u202e@h1", "h\u20281", "h\x071"])
def test_control_characters_are_in_no_name(name):
    with pytest.raises(TfdistError, match=r"invalid name '.*\\.*'; use \[user@\]host\[:slots\]"):
        parse_hosts(name)


def test_hosts_of_a_heterogeneous_job_get_their_groups():
    hosts = with_groups(parse_hosts("cpu7:2,gpu1"), {"gpu1": 0, "gpu2": 0, "cpu7": 1})
    assert [(host.name, host.slots, host.het_group) for host in hosts] == [("cpu7", 2, 1), ("gpu1", None, 0)]
    assert [host.het_group for host in with_groups(parse_hosts("cpu7"), {})] == [None]


def test_a_host_of_no_group_is_refused():
    with pytest.raises(TfdistError, match="gpu3: not a node of this heterogeneous job; use gpu1, cpu7"):
        with_groups(parse_hosts("gpu1,gpu3"), {"gpu1": 0, "cpu7": 1})
