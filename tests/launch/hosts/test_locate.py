import shlex
import socket

import psutil
import pytest

from tfdist.launch.agents.bootstrap import agent_argv
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.locate import address_towards, current_user, is_local, local_names, locate
from tfdist.launch.hosts.parse import parse_hosts
from tfdist.launch.hosts.transport import TransportOptions

CLIENT = """#!/bin/sh
# Stands in for 'ssh -G': logs every argument; the last one is the target.
printf '%s\\n' "$@" >> "$0.log"
for last; do :; done
case "$last" in
  *odd) echo "Bad configuration option: colour" >&2; exit 255 ;;
  *latin) printf 'hostname 10.0.0.9\\nremark \\377\\n' ;;
  *mute) printf 'user me\\n' ;;
  *) printf 'user me\\nhostname %s.lan\\nport 22\\n' "${last##*@}" ;;
esac
"""


@pytest.fixture
def client(tmp_path):
    """The path of a stand-in for the OpenSSH client."""
    path = tmp_path / "my ssh"
    path.write_text(CLIENT)
    path.chmod(0o755)
    return path


@pytest.fixture
def options(client):
    return TransportOptions(ssh=str(client))


def located(text, options):
    return locate(parse_hosts(text), options)


def own_address():
    """An IPv4 address of this machine, preferably not loopback."""
    addresses = (
        each.address for card in psutil.net_if_addrs().values() for each in card if each.family == socket.AF_INET
    )
    return next(iter(sorted(addresses, key=lambda address: address.startswith("127."))))


# --- which host is this machine


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("localhost", True),
        ("LocalHost", True),
        ("box", True),
        ("box.example.org", True),
        ("Box", True),
        ("10.0.0.7", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("0:0::1", True),
        ("fe80::7%eth0", True),
        ("10.0.0.8", False),
        ("fe80::8", False),
        ("boxes", False),
        ("example.org", False),
    ],
)
def test_names_and_addresses_that_mean_this_machine(name, local):
    names = frozenset({"localhost", "box", "box.example.org", "10.0.0.7", "fe80::7"})
    assert is_local(name, names) is local


def test_pods_are_never_this_machine():
    assert not is_local("localhost", frozenset())
    assert not is_local("127.0.0.1", frozenset())


def test_names_and_addresses_of_this_machine_are_local_and_need_no_ssh(options, client):
    for name in ("localhost", socket.gethostname(), own_address(), "127.0.0.1"):
        assert name.lower() in local_names()
        (host,) = located(name, options)
        assert (host.local, host.prefix, host.needs_quoting, host.address) == (True, (), False, "127.0.0.1")
    assert not client.with_name("my ssh.log").exists()


def test_this_machine_under_two_names_is_refused(options):
    with pytest.raises(TfdistError, match=r"localhost and 127\.0\.0\.1 are both this machine; .* localhost:2 for"):
        located("localhost,h2,127.0.0.1", options)


def test_this_machine_as_another_user_is_refused(options):
    assert located(f"{current_user()}@localhost", options)[0].local
    with pytest.raises(TfdistError, match=r"nobody-else@localhost is this machine, .* remove nobody-else@"):
        located("nobody-else@localhost", options)


def test_beside_other_hosts_this_machine_gets_an_address_on_their_route(options):
    own = own_address()
    here, other = locate((Host("localhost"), Host("h2", address=own)), options)
    assert (here.local, other.local) == (True, False)
    assert here.address == own


def test_a_configured_address_is_kept(options):
    here, other = locate((Host("localhost", address="10.9.9.9"), Host("h2", address="10.9.9.8")), options)
    assert (here.address, other.address) == ("10.9.9.9", "10.9.9.8")


@pytest.mark.parametrize("peer", ["no-such-host.invalid", "a..b", "x" * 70, "10.0.0.256"])
def test_without_a_route_to_the_peer_the_address_is_the_host_name(peer):
    assert address_towards(peer) == socket.gethostname()


# --- ssh -G


def test_addresses_are_what_the_ssh_client_resolves(options):
    assert [host.address for host in located("h1,me@h2,mute,latin", options)] == [
        "h1.lan",
        "h2.lan",
        "mute",
        "10.0.0.9",
    ]


def test_ssh_g_gets_the_options_of_the_connection(client):
    options = TransportOptions(ssh=f"{shlex.quote(str(client))} -p 2222 -i '/my key' -o User=x -o ProxyJump=gate")
    located("me@h1", options)
    arguments = client.with_name("my ssh.log").read_text().splitlines()
    assert arguments == ["-p", "2222", "-i", "/my key", "-o", "User=x", "-o", "ProxyJump=gate", "-G", "--", "me@h1"]


def test_options_that_ssh_rejects_are_reported_with_its_message(options):
    with pytest.raises(TfdistError, match="ssh -G odd: Bad configuration option: colour; check"):
        located("h1,odd", options)


def test_a_missing_ssh_client_is_named(tmp_path):
    with pytest.raises(TfdistError, match="--ssh /no/such/ssh: No such file or directory; install"):
        located("h1", TransportOptions(ssh="/no/such/ssh"))


def test_python_and_folder_of_a_host_override_the_defaults(options):
    options = TransportOptions(ssh=options.ssh, python="/all/python", chdir="/all")
    hosts = (Host("h1"), Host("h2", python="/own/python", chdir="/own"), Host("localhost"))
    defaults = [(host.python, host.chdir) for host in locate(hosts, options)]
    assert defaults == [("/all/python", "/all"), ("/own/python", "/own"), ("", "/all")]


def test_the_python_of_this_machine_in_the_hostfile_is_used(options):
    (host,) = locate((Host("localhost", python="/own/python"),), options)
    assert agent_argv(host)[0] == "/own/python"
    assert host.needs_package


# --- other transports


def test_with_a_custom_command_names_are_addresses_and_ssh_is_not_started():
    options = TransportOptions(transport="exec:kubectl exec -i {host} --")
    pod, here = located("pod-1,localhost", options)
    assert (pod.address, pod.local, pod.needs_quoting) == ("pod-1", False, False)
    assert pod.prefix == ("kubectl", "exec", "-i", "pod-1", "--")
    assert (here.address, here.local) == ("localhost", False)
