import socket

import psutil
import pytest

from tfdist.launch.agents.bootstrap import agent_argv
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.locate import address_towards, is_local, locate, own_names, own_user, slurm_hosts
from tfdist.launch.hosts.parse import parse_hosts
from tfdist.launch.hosts.transport import Reach

CLIENT = """#!/bin/sh
# Stands in for 'ssh -G': every argument is noted, and its last one is a target.
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
    path = tmp_path / "its ssh"
    path.write_text(CLIENT)
    path.chmod(0o755)
    return path


@pytest.fixture
def reach(client):
    return Reach(ssh=str(client))


def located(text, reach):
    return locate(parse_hosts(text), reach)


def own_address():
    """One of this machine's, loopback if it has no other."""
    found = (each.address for card in psutil.net_if_addrs().values() for each in card if each.family == socket.AF_INET)
    return next(iter(sorted(found, key=lambda address: address.startswith("127."))))


# --- which is this machine


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
def test_which_names_are_this_machine(name, local):
    names = frozenset({"localhost", "box", "box.example.org", "10.0.0.7", "fe80::7"})
    assert is_local(name, names) is local


def test_pods_are_never_this_machine_whatever_they_are_called():
    assert not is_local("localhost", frozenset())
    assert not is_local("127.0.0.1", frozenset())


def test_this_machines_own_name_and_addresses_are_local_and_need_no_ssh(reach, client):
    for name in ("localhost", socket.gethostname(), own_address(), "127.0.0.1"):
        assert name.lower() in own_names()
        (host,) = located(name, reach)
        assert (host.local, host.reach, host.quoted, host.address) == (True, (), False, "127.0.0.1")
    assert not client.with_name("its ssh.log").exists()


def test_this_machine_under_two_names_is_refused(reach):
    with pytest.raises(TfdistError, match=r"localhost and 127\.0\.0\.1 are both this machine: .* localhost:2"):
        located("localhost,h2,127.0.0.1", reach)


def test_this_machine_as_somebody_else_is_refused(reach):
    assert located(f"{own_user()}@localhost", reach)[0].local
    with pytest.raises(TfdistError, match=r"nobody-else@localhost is this machine, .* leave nobody-else@ away"):
        located("nobody-else@localhost", reach)


def test_a_mixed_list_gives_this_machine_an_address_that_others_can_reach(reach):
    own = own_address()
    here, other = locate((Host("localhost"), Host("h2", address=own)), reach)
    assert (here.local, other.local) == (True, False)
    assert here.address == own  # the way to one's own address begins there


def test_an_address_of_ones_own_wish_is_kept(reach):
    here, other = locate((Host("localhost", address="10.9.9.9"), Host("h2", address="10.9.9.8")), reach)
    assert (here.address, other.address) == ("10.9.9.9", "10.9.9.8")


@pytest.mark.parametrize("peer", ["no-such-host.invalid", "a..b", "x" * 70, "10.0.0.256"])
def test_a_peer_without_an_address_leaves_the_machines_own_name(peer):
    assert address_towards(peer) == socket.gethostname()


# --- what ssh says


def test_addresses_are_what_the_ssh_client_resolves(reach):
    assert [host.address for host in located("h1,me@h2,mute,latin", reach)] == ["h1.lan", "h2.lan", "mute", "10.0.0.9"]


def test_the_client_is_asked_with_the_same_options_that_connect(client):
    reach = Reach(ssh=str(client), ssh_options=("User=x", "ProxyJump=gate"), identity="/my key", ssh_port=2222)
    located("me@h1", reach)
    asked = client.with_name("its ssh.log").read_text().splitlines()
    assert asked == ["-p", "2222", "-i", "/my key", "-o", "User=x", "-o", "ProxyJump=gate", "-G", "--", "me@h1"]


def test_what_the_client_does_not_take_is_said_in_its_own_words(reach):
    with pytest.raises(TfdistError, match="ssh does not take these options for odd: Bad configuration option: colour"):
        located("h1,odd", reach)


def test_a_client_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TfdistError, match="--ssh /no/such/ssh: No such file or directory; install"):
        located("h1", Reach(ssh="/no/such/ssh"))


def test_python_and_folder_are_the_hosts_own_or_those_of_all_others(reach):
    reach = Reach(ssh=reach.ssh, python="/all/python", chdir="/all")
    hosts = (Host("h1"), Host("h2", python="/own/python", chdir="/own"), Host("localhost"))
    told = [(host.python, host.chdir) for host in locate(hosts, reach)]
    assert told == [("/all/python", "/all"), ("/own/python", "/own"), ("", "/all")]


def test_a_python_that_the_hostfile_names_for_this_machine_is_used(reach):
    (host,) = locate((Host("localhost", python="/own/python"),), reach)
    assert agent_argv(host)[0] == "/own/python"
    assert host.bare  # it may not have our package


# --- other transports


def test_with_a_command_the_names_are_addresses_and_nothing_is_asked():
    reach = Reach(transport="exec:kubectl exec -i {host} --")
    pod, here = located("pod-1,localhost", reach)
    assert (pod.address, pod.local, pod.quoted) == ("pod-1", False, False)
    assert pod.reach == ("kubectl", "exec", "-i", "pod-1", "--")
    assert (here.address, here.local) == ("localhost", False)


def test_srun_takes_the_allocations_hosts_in_slurms_order(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[09-10,03],login1")
    hosts = slurm_hosts()
    assert [host.name for host in hosts] == ["gpu09", "gpu10", "gpu03", "login1"]
    assert [host.address for host in locate(hosts, Reach(transport="srun"))] == [host.name for host in hosts]


@pytest.mark.parametrize("nodes", [None, ""])
def test_srun_outside_of_an_allocation(monkeypatch, nodes):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    if nodes is not None:
        monkeypatch.setenv("SLURM_JOB_NODELIST", nodes)
    with pytest.raises(TfdistError, match="salloc"):
        slurm_hosts()
