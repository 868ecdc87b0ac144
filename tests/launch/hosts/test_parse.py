import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.parse import expand, parse_hostfile, parse_hosts, read_hosts


@pytest.fixture
def hostfile(tmp_path):
    """A function that writes a host file."""

    def write(text):
        path = tmp_path / "hosts.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def names(hosts):
    return [host.name for host in hosts]


# --- the option


def test_a_list_is_kept_in_order_with_users_and_slots():
    assert parse_hosts("b,a:2, user@c ,d@e:3") == (
        Host("b"), Host("a", slots=2), Host("c", user="user"), Host("e", user="d", slots=3),
    )  # fmt: skip


def test_a_user_may_have_an_at_sign():
    (host,) = parse_hosts("me@example.org@h1")
    assert (host.user, host.name, host.target) == ("me@example.org", "h1", "me@example.org@h1")


def test_ipv6_in_brackets_with_and_without_slots():
    found = parse_hosts("[::1],[2001:db8::7]:2,me@[fe80::1%eth0]")
    assert found == (Host("::1"), Host("2001:db8::7", slots=2), Host("fe80::1%eth0", user="me"))


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("node[01-03,10]", ["node01", "node02", "node03", "node10"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[3,1,2]", ["n3", "n1", "n2"]),
        ("r[1-2]n[1-2].lan:4", ["r1n1.lan:4", "r1n2.lan:4", "r2n1.lan:4", "r2n2.lan:4"]),
        ("[::1]", ["[::1]"]),
        ("plain", ["plain"]),
    ],
)
def test_ranges_are_written_out_in_order_with_their_zeros(word, found):
    assert expand(word) == found


def test_a_range_in_a_list_has_commas_of_its_own():
    assert names(parse_hosts("a,node[01-02,05]:2,b")) == ["a", "node01", "node02", "node05", "b"]
    assert [host.slots for host in parse_hosts("n[1-2]:2,b")] == [2, 2, None]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no host"),
        (" , ", "names no host"),
        ("a,,b", "empty place between two commas"),
        ("a,b,", "empty place"),
        ("a,b:2,a", "the host a is there twice"),
        ("a,me@a", "the host a is there twice"),
        ("n[1-3],n2", "the host n2 is there twice"),
        ("a:0", "'0' slots"),
        ("a:-1", "'-1' slots"),
        ("a:two", "'two' slots"),
        ("a:", "'' slots"),
        ("a:1.5", "'1.5' slots"),
        ("a:²", "'²' slots"),
        ("a:1000000000", "from 1 to 10000"),
        ("a:" + "9" * 5000, "from 1 to 10000"),
        ("-oProxyCommand=x", "cannot be a name"),
        ("-a", "'-a' cannot be a name"),
        ("me@-a", "'-a' cannot be a name"),
        ("-me@a", "'-me' cannot be a name"),
        ("@a", "'' cannot be a name"),
        ("me@", "'' cannot be a name"),
        (":2", "'' cannot be a name"),
        ("a b", "'a b' cannot be a name"),
        ("a;b", "'a;b' cannot be a name"),
        ("$(x)", "cannot be a name"),
        ("a=b", "'a=b' cannot be a name"),
        ("a\x00b", "cannot be a name"),
        ("::1", "IPv6 address belongs in brackets"),
        ("2001:db8::7:2", "IPv6 address belongs in brackets"),
        ("a:2:3", "not [user@]host[:slots]"),
        ("[::1]2", "not [user@]host[:slots]"),
        ("[a:b]", "not [user@]host[:slots]"),
        ("[h1]", "cannot be a name"),
        ("n[3-1]", "the range 3-1 counts down; write 1-3"),
        ("n[1-99999999]", "more than 10000 hosts"),
        ("n[1-999]m[1-999]", "more than 10000 hosts"),
        ("n[" + "9" * 5000 + "]", "cannot be a name"),
        ("n[1-", "cannot be a name"),
        ("n[a-b]", "cannot be a name"),
    ],
)
def test_a_wrong_list_names_the_option_the_value_and_the_mistake(text, says):
    with pytest.raises(TfdistError) as caught:
        parse_hosts(text)
    assert "--hosts" in str(caught.value)
    assert says in str(caught.value)
    assert caught.value.exit_code == 2


# --- the file


def test_a_file_has_a_host_a_line_with_comments_blank_lines_and_settings(hostfile):
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


def test_a_range_in_a_file_gives_all_of_them_the_settings(hostfile):
    found = parse_hostfile(hostfile("node[09-10] slots=2 role=ps\nlast"))
    assert found == (Host("node09", slots=2, role="ps"), Host("node10", slots=2, role="ps"), Host("last"))


def test_a_byte_order_mark_is_no_part_of_a_name(hostfile):
    assert names(parse_hostfile(hostfile(b"\xef\xbb\xbfh1\n"))) == ["h1"]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("h1\nh2 color=red\n", 2, ["'color=red'", "slots=", "chdir="]),
        ("h1 fast\n", 1, ["'fast'", "none of the keys"]),
        ("h1\n\n# c\nh2\nh1:2\n", 5, ["the host h1 is there twice"]),
        ("h1 slots=0\n", 1, ["slots=0", "'0' slots"]),
        ("h1\nh2:x\n", 2, ["h2:x", "'x' slots"]),
        ("h1:2 slots=2\n", 1, ["behind the colon already"]),
        ("h1 slots=1 slots=2\n", 1, ["slots= is there twice"]),
        ("h1\n-h2\n", 2, ["'-h2' cannot be a name"]),
        ("'-oProxyCommand=touch x'\n", 1, ["cannot be a name"]),
        ("slots=2\n", 1, ["'slots=2' cannot be a name"]),
        ("h1,h2\n", 1, ["'h1,h2' cannot be a name"]),
        ("''\n", 1, ["'' cannot be a name"]),
        ("h1 role=boss\n", 1, ["role=boss", "chief, worker, ps, evaluator"]),
        ("h1 port=0\n", 1, ["port=0", "1024 to 65535"]),
        ("h1 port=70000\n", 1, ["port=70000"]),
        ("h1 gpus=0,0\n", 1, ["gpus=0,0", "each GPU once"]),
        ("h1 gpus=\n", 1, ["each GPU once"]),
        ("h1 python=\n", 1, ["write a value"]),
        ("h1 addr=\n", 1, ["'' is not an address"]),
        ("h1 addr=10.0.0.1:22\n", 1, ["'10.0.0.1:22' is not an address", "without a port"]),
        ("h1 'addr=a b'\n", 1, ["is not an address"]),
        ("h[1-2] addr=10.0.0.1\n", 1, ["cannot be the address of 2 hosts"]),
        ("h1\nh2 chdir='/a b\n", 2, ["close the quote"]),
    ],
)
def test_a_wrong_line_is_named_with_file_number_and_value(hostfile, text, line, says):
    path = hostfile(text)
    with pytest.raises(TfdistError) as caught:
        parse_hostfile(path)
    assert f"--hostfile {path}, line {line}:" in str(caught.value)
    for words in says:
        assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing but this\n   # and this"])
def test_a_file_without_a_host_is_never_taken_for_this_machine(hostfile, text):
    with pytest.raises(TfdistError, match="names no host"):
        parse_hostfile(hostfile(text))


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path):
    for path, why in ((tmp_path / "none.txt", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(TfdistError, match=re.escape(f"--hostfile {path}: {why}")):
            parse_hostfile(path)


def test_a_file_that_is_not_utf_8_is_named_with_the_line(hostfile):
    path = hostfile(b"h1\nh2\nh\xff3\n")
    with pytest.raises(TfdistError, match=re.escape(f"{path}, line 3: it is not UTF-8")):
        parse_hostfile(path)
    with pytest.raises(TfdistError, match="not UTF-8"):
        parse_hostfile(hostfile("h1\n".encode("utf-16")))


# --- both


def test_without_either_option_there_are_no_hosts():
    assert read_hosts(None, None) == ()


def test_both_options_are_one_too_many(hostfile):
    with pytest.raises(TfdistError, match="give one of them"):
        read_hosts("h1", hostfile("h1"))


def test_include_and_exclude_choose_in_order(hostfile):
    every = "node1,node2,big1,big2"
    assert names(read_hosts(every, None, ["node*"])) == ["node1", "node2"]
    assert names(read_hosts(every, None, ["big*", "node1"])) == ["node1", "big1", "big2"]
    assert names(read_hosts(every, None, [], ["*1"])) == ["node2", "big2"]
    assert names(read_hosts(None, hostfile("a\nb\n"), ["?"], ["a"])) == ["b"]


def test_patterns_that_leave_nothing_or_have_nothing_to_choose_from():
    with pytest.raises(TfdistError, match="--include x --exclude b leaves no host of a, b"):
        read_hosts("a,b", None, ["x"], ["b"])
    with pytest.raises(TfdistError, match="--exclude b: there are no hosts"):
        read_hosts(None, None, [], ["b"])


def test_an_empty_option_is_an_error_and_not_this_machine():
    with pytest.raises(TfdistError, match="names no host"):
        read_hosts("", None)


def test_an_endpoint_has_ipv6_in_brackets():
    assert Host("h", "10.0.0.1").endpoint(7) == "10.0.0.1:7"
    assert Host("h", "2001:db8::7").endpoint(7) == "[2001:db8::7]:7"


def sane(host):
    return not host.name.startswith("-") and not host.target.startswith("-") and not re.search(r"\s", host.target)


LIKELY = st.text(st.sampled_from("ab01-9,:@[]=#.%\"' \\\n*$\x00") | st.characters(codec="utf-8"), max_size=30)


@given(LIKELY)
def test_any_list_gives_hosts_or_one_sentence(text):
    try:
        found = parse_hosts(text)
    except TfdistError:
        return
    assert found
    assert len({host.name for host in found}) == len(found)
    assert all(map(sane, found))


@given(LIKELY.map(str.encode) | st.binary(max_size=60) | st.just(b"h1 slots=1\n"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_gives_hosts_or_one_sentence(hostfile, data):
    path = hostfile(data)
    try:
        found = parse_hostfile(path)
    except TfdistError:
        return
    assert found
    assert all(map(sane, found))
