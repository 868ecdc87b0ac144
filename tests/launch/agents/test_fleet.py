"""Several real agents of this machine, behind stand-ins for what connects to other hosts."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from tfdist.launch.agents.fleet import clock_note, connect, connect_some
from tfdist.launch.agents.messages import CloseProbe, Reserve, Reserved
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import machines_of
from tfdist.launch.policy import Policy

QUICK = Policy(hello_s=20.0)
UNANSWERED = CloseProbe()


def host(name, script='exec "$@"', **values):
    """A host that is reached through this shell script, which gets the agent's command as its arguments."""
    return Host(name, "127.0.0.1", prefix=("sh", "-c", script, "stand-in"), python=sys.executable, **values)


@contextmanager
def refused():
    """What is said when the hosts cannot be had."""
    with pytest.raises(TfdistError) as caught:
        yield caught
    assert caught.value.exit_code == ExitCode.HOST_LOST


def test_every_host_has_said_hello_and_is_gone_afterwards(survivors):
    hosts = [host(f"h{number}") for number in range(4)]
    with connect(hosts, QUICK) as fleet:
        assert list(fleet.hellos) == list(machines_of(fleet.hellos)) == hosts
        assert all(hello["executable"] == sys.executable for hello in fleet.hellos.values())
        assert fleet.notes == ()
        assert len(survivors()) >= 4
    assert survivors() == []


def test_questions_are_answered_by_each_in_the_order_asked():
    one, two = host("one", 'sleep 0.3; exec "$@"'), host("two")
    with connect([one, two], QUICK) as fleet:
        answers = fleet.ask({one: Reserve((0, 0)), two: Reserve((0,))}, "reserve ports", 10)
        assert list(answers) == [one, two]
        assert all(isinstance(message, Reserved) for message in answers.values())
        assert [len(message.ports) for message in answers.values()] == [2, 1]
        assert fleet.ask({}, "do nothing", 1) == {}


def test_all_hosts_that_cannot_be_reached_are_named_each_with_its_mend(survivors):
    hosts = [
        host("fine"),
        host("down", "echo 'ssh: connect to host down port 22: Connection refused' >&2; exit 255", needs_quoting=True),
        host("closed", "echo 'me@closed: Permission denied (publickey).' >&2; exit 255", needs_quoting=True),
    ]
    with refused() as caught, connect(hosts, QUICK):
        pytest.fail("it is not connected")
    first, second = str(caught.value).splitlines()
    assert first.startswith("down: nothing listens on the SSH port")
    assert second.startswith("closed: login denied for you")
    assert "ssh-copy-id closed" in second
    assert survivors() == []


def test_some_may_be_lost_where_that_is_what_is_to_be_found_out():
    fine, down = host("fine"), host("down", "echo no route >&2; exit 1")
    with connect_some([fine, down], QUICK) as fleet:
        assert list(fleet.hellos) == [fine]
        assert fleet.lost == {down: "no route"}
        answers = fleet.inquire({fine: Reserve((0,)), down: Reserve((0,))}, "reserve", 10)
        assert list(answers) == [fine]


@pytest.mark.parametrize(
    "noise",
    [
        "echo Welcome to $0; echo '{\"kind\": 7}'; echo '{}'",
        "printf 'no newline at its end '",
        "printf '\\377\\376 no utf-8\\n\\n\\000\\n'",
        "echo to stderr >&2",
    ],
)
def test_what_a_login_script_prints_before_hello_does_no_harm(noise):
    with connect([host("noisy", f'{noise}; exec "$@"')], QUICK) as fleet:
        assert len(fleet.hellos) == 1


def test_a_host_that_lets_nobody_in_is_heard_even_if_it_speaks_on_stdout():
    script = "echo 'This account is currently not available.'; exit 1"
    with refused() as caught, connect([host("nologin", script, needs_quoting=True)], QUICK):
        pytest.fail("it is not connected")
    assert "This account is currently not available" in str(caught.value)
    assert "run this to see why" in str(caught.value)


def test_a_hello_that_never_comes_is_waited_for_no_longer_than_the_policy_says(survivors):
    mute = [host(f"mute{number}", "exec sleep 60", needs_quoting=True) for number in range(3)]
    began = time.monotonic()
    with refused() as caught, connect([host("fine"), *mute], Policy(hello_s=1.5)):
        pytest.fail("it is not connected")
    assert time.monotonic() - began < 8
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["mute0", "mute1", "mute2"]
    assert all("did not say hello within 1.5 s" in line for line in lines)
    assert survivors() == []


def test_more_hosts_than_files_may_be_open_raise_the_limit_as_far_as_it_may():
    code = (
        "import resource, sys\n"
        "from tfdist.launch.agents.fleet import allow_descriptors\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 100))\n"
        "for wanted in (50, 80, 500):\n"
        "    allow_descriptors(wanted)\n"
        "    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["64", "80", "100"]


def test_an_agent_that_may_not_be_signalled_does_not_hide_why_it_is_ended(monkeypatch):
    def forbidden(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.killpg", forbidden)
    mute = host("mute", "exec sleep 3", needs_quoting=True)
    with refused() as caught, connect([mute], Policy(hello_s=0.5)):
        pytest.fail("it is not connected")
    assert "did not say hello within 0.5 s" in str(caught.value)


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(TfdistError, match="cannot run 'no-such-ssh'"), connect([Host("h", prefix=("no-such-ssh",))]):
        pytest.fail("it is not connected")


def test_a_python_that_is_not_there_is_named_with_the_way_out():
    away = Host("h", "127.0.0.1", prefix=("env",), python="/no/such/python")
    with refused() as caught, connect([away], QUICK):
        pytest.fail("it is not connected")
    assert "/no/such/python" in str(caught.value)
    assert "--python" in str(caught.value)


def test_an_agent_that_is_lost_while_it_is_asked_is_named():
    with connect([host("gone")], QUICK) as fleet:
        (only,) = fleet.hellos
        pid = fleet.channels[only]._process.pid
        threading.Timer(0.2, os.kill, (pid, signal.SIGTERM)).start()
        with pytest.raises(TfdistError, match="lost the agent on gone") as caught:
            fleet.ask({only: UNANSWERED}, "answer", 10)
        assert caught.value.exit_code == ExitCode.HOST_LOST


def test_an_agent_that_does_not_answer_in_time_is_named():
    with connect([host("slow")], QUICK) as fleet:
        (only,) = fleet.hellos
        with pytest.raises(TfdistError, match="the agent on slow did not think in time"):
            fleet.ask({only: UNANSWERED}, "think", 0.2)


def test_ctrl_c_while_connecting_ends_it_at_once(survivors):
    began = time.monotonic()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(TfdistError, match="interrupted") as caught, connect([host("mute", "exec sleep 60")], QUICK):
        pytest.fail("it is not connected")
    assert caught.value.exit_code == ExitCode.INTERRUPTED
    assert time.monotonic() - began < 5
    assert survivors() == []


def test_what_connects_takes_its_own_children_with_it(survivors):
    wrapper = host("wrapped", "trap '' TERM; sleep 60 & wait; wait", needs_quoting=True)
    with refused(), connect([wrapper], Policy(hello_s=0.5)):
        pytest.fail("it is not connected")
    assert survivors() == []


def test_a_gpu_that_is_not_there_is_named_with_those_that_are():
    with connect([host("h", gpus=("7",))], QUICK) as fleet, pytest.raises(TfdistError, match="h has no GPU '7'"):
        assert machines_of(fleet.hellos) is None


@pytest.mark.parametrize(
    ("behind_s", "says"),
    [(0.0, None), (1.9, None), (-1.9, None), (5.04, "5.0 s behind this"), (-60.0, "60.0 s ahead of this")],
)
def test_a_clock_that_is_off_is_a_warning(behind_s, says):
    notes = clock_note(Host("h"), behind_s)
    assert [note.host for note in notes] == ["h"] * (says is not None)
    assert all(says in note.text and "NTP" in note.text for note in notes)


def test_a_clock_that_is_off_is_noticed_in_the_hello():
    wrong = host(
        "wrong",
        'printf \'{"kind": "hello", "description": {"clock": %s}}\\n\' $(($(date +%s) - 3600)); exec cat 3>&1 >/dev/null',
    )
    with connect([wrong, host("right")], QUICK) as fleet:
        assert [note.host for note in fleet.notes] == ["wrong"]
        assert 3590 < fleet.behind_s[wrong] < 3610


def test_an_agent_that_falls_silent_is_lost_long_before_its_answer_is_due(survivors):
    policy = Policy(hello_s=60.0, silence_s=5.0)
    frozen = host("frozen")
    with connect([frozen], policy) as fleet:
        (agent,) = (int(line.split(":")[0]) for line in survivors() if "io.BufferedReader" in line)
        os.kill(agent, signal.SIGSTOP)
        began = time.monotonic()
        assert fleet.inquire({frozen: UNANSWERED}, "answer", policy.hello_s) == {}
        assert time.monotonic() - began < 20
        assert fleet.lost == {frozen: "no message for 5 s"}
    assert survivors() == []
