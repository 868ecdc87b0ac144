"""Real agents on this machine, behind stand-ins for ssh."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from tests.launch.supervisors import FakeChannel
from tfdist.launch.agent_program.description import describe
from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.fleet import Requests
from tfdist.launch.agents.inbox import Inbox
from tfdist.launch.agents.messages import Hello, Inspect, Inspected, MeasureLink, Reserve, Reserved, Started
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import machines_of
from tfdist.launch.policy import Policy

from .stand_ins import channel_to, host, python_task, wait_for_message

H1, H2 = Host("h1"), Host("h2")


def test_an_answer_goes_to_its_own_request_in_any_order():
    requests, answers, one, two = Requests(), [], FakeChannel(H1), FakeChannel(H2)
    requests.send(one, Reserve((0,)), lambda reply: answers.append(("one", reply)))
    requests.send(two, Reserve((0,)), lambda reply: answers.append(("two", reply)))
    requests.send(one, Inspect(("t",)), lambda reply: answers.append(("again", reply)))
    numbers = [message.request for message in (*one.sent, *two.sent)]
    assert len(set(numbers)) == 3
    first, again, second = numbers
    for source, number in ((H1, again), (H2, second), (H1, first)):
        requests.take(source, Reserved((5,), request=number))
    assert [name for name, _ in answers] == ["again", "two", "one"]


def test_a_late_answer_is_not_taken_for_that_of_a_new_request():
    requests, answers, channel = Requests(), [], FakeChannel(H1)
    requests.send(channel, Reserve((0,)), lambda _: answers.append("old"))
    requests.send(channel, Reserve((0,)), lambda _: answers.append("new"))
    old, new = (message.request for message in channel.sent)
    requests.take(H1, Reserved((1,), request=old))
    assert answers == ["old"]
    requests.take(H1, Reserved((2,), request=new))
    requests.take(H1, Reserved((3,), request=new))  # twice
    assert answers == ["old", "new"]


def test_requests_to_a_host_that_is_lost_are_forgotten():
    requests, answers, one, two = Requests(), [], FakeChannel(H1), FakeChannel(H2)
    for channel in (one, two):
        requests.send(channel, Inspect(("t",)), lambda reply: answers.append(reply.request))
    requests.forget(H1)
    for channel in (one, two):
        requests.take(channel.host, Inspected({}, {}, {}, request=channel.sent[0].request))
    assert answers == [two.sent[0].request]


def test_a_host_cannot_answer_for_another():
    requests, answers = Requests(), []
    channel = FakeChannel(H1)
    requests.send(channel, Reserve((0,)), answers.append)
    (message,) = channel.sent
    requests.take(H2, Reserved((1,), request=message.request))
    requests.take(None, Reserved((1,), request=message.request))
    requests.take(H1, Started("t", 1, 0.0))
    assert answers == []
    requests.take(H1, Reserved((2,), request=message.request))
    assert [answer.ports for answer in answers] == [(2,)]


def test_an_agent_answers_while_its_task_runs():
    inbox, requests, answers = Inbox(), Requests(), []
    with channel_to(host("h"), inbox) as channel:
        wait_for_message(inbox, Hello)
        channel.send(python_task("import time; time.sleep(600)"))
        wait_for_message(inbox, Started)
        requests.send(channel, Inspect(("worker-0", "no such task")), answers.append)
        arrival = wait_for_message(inbox, Inspected)
        requests.take(arrival.host, arrival.message)
    (answer,) = answers
    assert set(answer.states) == set(answer.waits) == {"worker-0"}
    assert answer.states["worker-0"] in "RSD"


pytestmark = pytest.mark.slow

QUICK = Policy(start_timeout_s=20.0)
MUTE = socket.create_server(("127.0.0.1", 0))
"""Connections to it are accepted by the kernel and never answered."""
LOGGED_IN = '{"kind": "logged_in"}'
CHATTER = f"for n in $(seq 100); do echo '{LOGGED_IN}'; sleep 0.05; done & exec \"$@\""
"""An agent from which messages come all the time, for 5 s."""
UNANSWERED = MeasureLink("127.0.0.1", MUTE.getsockname()[1], "token", 1.0)
"""An agent answers it after 5 s."""


@contextmanager
def refused():
    """The hosts cannot be connected."""
    with pytest.raises(TfdistError) as caught:
        yield caught
    assert caught.value.exit_code == ExitCode.HOST_LOST


def test_every_host_has_an_agent_that_ends_afterwards(survivors):
    hosts = [host(f"h{number}") for number in range(4)]
    with connect(hosts, QUICK) as fleet:
        assert list(fleet.hellos) == list(machines_of(fleet.hellos)) == hosts
        assert all(hello["executable"] == sys.executable for hello in fleet.hellos.values())
        assert len(survivors()) >= 4
    assert survivors() == []


def test_answers_are_in_the_order_of_the_requests():
    one, two = host("one", 'sleep 0.3; exec "$@"'), host("two")
    with connect([one, two], QUICK) as fleet:
        answers = fleet.ask({one: Reserve((0, 0)), two: Reserve((0,))}, "reserve ports", 10)
        assert list(answers) == [one, two]
        assert all(isinstance(message, Reserved) for message in answers.values())
        assert [len(message.ports) for message in answers.values()] == [2, 1]
        assert fleet.ask({}, "do nothing", 1) == {}


def test_all_unreachable_hosts_are_named_each_with_a_fix(survivors):
    hosts = [
        host("fine"),
        host("down", "echo 'ssh: connect to host down port 22: Connection refused' >&2; exit 255", needs_quoting=True),
        host("closed", "echo 'me@closed: Permission denied (publickey).' >&2; exit 255", needs_quoting=True),
    ]
    with refused() as caught, connect(hosts, QUICK):
        pytest.fail("connected")
    first, second = str(caught.value).splitlines()
    assert first.startswith("down: nothing listens on the SSH port")
    assert second.startswith("closed: login denied for you")
    assert "ssh-copy-id closed" in second
    assert survivors() == []


def test_unreachable_hosts_are_recorded_and_get_no_requests():
    fine, down = host("fine"), host("down", "echo no route >&2; exit 1")
    with connect([fine, down], QUICK, require_all=False) as fleet:
        assert list(fleet.hellos) == [fine]
        assert "(no route)" in fleet.lost[down].what
        answers = fleet.ask({fine: Reserve((0,)), down: Reserve((0,))}, "reserve", 10)
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
def test_output_of_a_login_script_is_skipped(noise):
    with connect([host("noisy", f'{noise}; exec "$@"')], QUICK) as fleet:
        assert len(fleet.hellos) == 1


def test_a_refused_login_is_shown_even_from_stdout():
    script = "echo 'This account is currently not available.'; exit 1"
    with refused() as caught, connect([host("nologin", script, needs_quoting=True)], QUICK):
        pytest.fail("connected")
    assert "This account is currently not available" in str(caught.value)
    assert "run this to see why" in str(caught.value)


def test_a_missing_hello_is_an_error_after_the_timeout_of_the_policy(survivors):
    mute = [host(f"mute{number}", "exec sleep 60", needs_quoting=True) for number in range(3)]
    started = time.monotonic()
    with refused() as caught, connect([host("fine"), *mute], Policy(alive_s=4.0)):
        pytest.fail("connected")
    assert time.monotonic() - started < 15
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["mute0, mute1, mute2"]
    assert all("did not say hello within 4 s" in line for line in lines)
    assert survivors() == []


def test_many_hosts_raise_the_limit_on_open_files():
    code = (
        "import resource, sys\n"
        "from tfdist.launch.agents.connect import allow_descriptors\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 100))\n"
        "for limit in (50, 80, 500):\n"
        "    allow_descriptors(limit)\n"
        "    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["64", "80", "100"]


def test_an_agent_that_cannot_be_signalled_does_not_hide_the_error(monkeypatch):
    def forbidden(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.killpg", forbidden)
    mute = host("mute", "exec sleep 3", needs_quoting=True)
    with refused() as caught, connect([mute], Policy(alive_s=0.5)):
        pytest.fail("connected")
    assert "did not say hello within 0.5 s" in str(caught.value)


def test_a_missing_ssh_client_is_named():
    with pytest.raises(TfdistError, match="cannot run 'no-such-ssh'"), connect([Host("h", prefix=("no-such-ssh",))]):
        pytest.fail("connected")


def test_a_missing_python_is_named_with_a_fix():
    away = Host("h", "127.0.0.1", prefix=("env",), python="/no/such/python")
    with refused() as caught, connect([away], QUICK):
        pytest.fail("connected")
    assert "/no/such/python" in str(caught.value)
    assert "--python" in str(caught.value)


def test_an_agent_lost_during_a_request_is_recorded():
    with connect([host("gone")], QUICK) as fleet:
        (only,) = fleet.hellos
        pid = fleet.channels[only].process.pid
        threading.Timer(0.2, os.kill, (pid, signal.SIGTERM)).start()
        assert fleet.ask({only: UNANSWERED}, "answer", 4) == {}
        assert str(fleet.lost[only]).startswith("gone: lost the agent (")


def test_an_agent_that_answers_too_late_is_recorded():
    with connect([host("slow")], QUICK) as fleet:
        (only,) = fleet.hellos
        assert fleet.ask({only: UNANSWERED}, "think", 0.2) == {}
        assert str(fleet.lost[only]).startswith("slow: lost the agent (it did not think within 0.2 s); check")


def test_messages_of_other_agents_do_not_delay_the_time_limit_of_a_request():
    chatty = host("chatty", CHATTER)
    with connect([chatty, host("slow")], QUICK) as fleet:
        slow = list(fleet.hellos)[1]
        started = time.monotonic()
        assert fleet.ask({slow: UNANSWERED}, "think", 1.0) == {}
        assert time.monotonic() - started < 4  # the answer comes after 5 s


def test_messages_of_other_agents_do_not_delay_the_start_timeout():
    chatty = host("chatty", CHATTER)
    with refused() as caught, connect([chatty, host("mute", "exec sleep 60")], Policy(alive_s=1.0)):
        pytest.fail("connected")
    assert str(caught.value).startswith("mute: ")
    with (
        refused() as caught,
        connect([chatty, host("mute", f"echo '{LOGGED_IN}'; exec sleep 60")], Policy(start_timeout_s=3.0)),
    ):
        pytest.fail("connected")
    assert "mute: the host is too slow (did not describe itself within 3 s)" in str(caught.value)


def test_ctrl_c_interrupts_connecting(survivors):
    started = time.monotonic()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(TfdistError, match="interrupted") as caught, connect([host("mute", "exec sleep 60")], QUICK):
        pytest.fail("connected")
    assert caught.value.exit_code == ExitCode.INTERRUPTED
    assert time.monotonic() - started < 5
    assert survivors() == []


def test_children_of_the_ssh_client_end_with_it(survivors):
    wrapper = host("wrapped", "trap '' TERM; sleep 60 & wait; wait", needs_quoting=True)
    with refused(), connect([wrapper], Policy(alive_s=0.5)):
        pytest.fail("connected")
    assert survivors() == []


def test_a_missing_gpu_is_named():
    with connect([host("h", gpus=("7",))], QUICK) as fleet, pytest.raises(TfdistError, match="h has no GPU '7'"):
        assert machines_of(fleet.hellos) is None


def test_the_start_timeout_shows_how_far_a_clock_is_off():
    alive = 'printf \'{"kind": "alive", "time": %s}\\n\' $(($(date +%s) - 3600))'
    hello = f"echo {shlex.quote(json.dumps({'kind': 'hello', 'description': describe()}))}"
    wrong = host("wrong", f"{alive}; {hello}; exec cat 3>&1 >/dev/null")
    right = host("right")
    with connect([wrong, right], QUICK) as fleet:
        assert 3590 < fleet.behind_s[wrong] < 3610
        assert abs(fleet.behind_s[right]) < 2


def test_a_silent_agent_is_lost_before_its_answer_is_due(survivors):
    policy = Policy(start_timeout_s=60.0, silence_s=5.0)
    frozen = host("frozen")
    with connect([frozen], policy) as fleet:
        os.killpg(fleet.channels[frozen].process.pid, signal.SIGSTOP)
        started = time.monotonic()
        assert fleet.ask({frozen: UNANSWERED}, "answer", policy.start_timeout_s) == {}
        assert time.monotonic() - started < 20
        assert "(no message for 5 s)" in fleet.lost[frozen].what
    assert survivors() == []
