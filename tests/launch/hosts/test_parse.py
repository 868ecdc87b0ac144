import pytest
from hypothesis import given

from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.parse import expand, parse_hosts

from .samples import ANY_TEXT, names, sane


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
    assert expand(entry) == expanded


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
