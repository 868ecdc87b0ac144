"""Logins through jump hosts, with stand-ins for ssh. tests/integration/test_jump_host.py has real ones."""

import pytest

from tfdist.launch.agents import connect as module
from tfdist.launch.agents.connect import LOGINS_PER_GATEWAY, MOST_TRIES, connect
from tfdist.launch.errors import TfdistError
from tfdist.launch.policy import Policy

from .stand_ins import host

DROPPED = "echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255"


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 0.05)


def dropped_times(folder, name, times):
    """A script whose first logins are dropped; the others succeed."""
    count = f"echo >>{folder}/{name}; [ $(wc -l <{folder}/{name}) -gt {times} ]"
    return f'if {count}; then exec "$@"; else {DROPPED}; fi'


@pytest.mark.slow
def test_a_login_that_the_sshd_has_dropped_is_tried_again(tmp_path):
    hosts = [host("a", dropped_times(tmp_path, "a", MOST_TRIES - 1)), host("b")]
    with connect(hosts) as fleet:
        assert list(fleet.hellos) == hosts


@pytest.mark.slow
def test_a_host_whose_logins_are_always_dropped_is_named(tmp_path, survivors):
    with (
        pytest.raises(TfdistError) as caught,
        connect([host("a", dropped_times(tmp_path, "a", 99), needs_quoting=True)]),
    ):
        pytest.fail("connected")
    assert str(caught.value).startswith("a: sshd closed the connection before the login (kex_exchange_identification: ")
    assert len((tmp_path / "a").read_text()) == MOST_TRIES
    assert survivors() == []


def test_other_failed_logins_are_not_tried_again(tmp_path):
    script = f"echo >>{tmp_path}/a; echo 'Permission denied (publickey).' >&2; exit 255"
    with pytest.raises(TfdistError), connect([host("a", script)]):
        pytest.fail("connected")
    assert (tmp_path / "a").read_text() == "\n"


def logins_at_once(folder):
    """The largest number of logins that were open at the same time: each start adds 1, each end takes 1."""
    steps = [int(line) for line in (folder / "log").read_text().split()]
    return max(sum(steps[: end + 1]) for end in range(len(steps)))


@pytest.mark.parametrize("gateway", ["gate", ""])
@pytest.mark.slow
def test_few_logins_through_one_jump_host_are_open_at_once(gateway, tmp_path):
    log = f"{tmp_path}/log"
    script = f'echo 1 >>{log}; sleep 0.3; echo -1 >>{log}; exec "$@"'
    hosts = [host(f"h{number}", script, gateway=gateway) for number in range(LOGINS_PER_GATEWAY + 4)]
    with connect(hosts) as fleet:
        assert list(fleet.hellos) == hosts
    assert (logins_at_once(tmp_path) > LOGINS_PER_GATEWAY) is (gateway == "")


def test_hosts_that_get_no_turn_are_named_with_the_reason():
    hosts = [host(f"h{number}", "exec sleep 60", gateway="gate") for number in range(LOGINS_PER_GATEWAY + 1)]
    with pytest.raises(TfdistError) as caught, connect(hosts, Policy(start_timeout_s=1.0)):
        pytest.fail("connected")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("h0, h1, ")
    assert lines[-1].startswith(f"h{LOGINS_PER_GATEWAY}: the jump host is too slow (not connected within 1 s: ")
    assert lines[-1].endswith("; raise --start-timeout")
