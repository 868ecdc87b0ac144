"""Hosts that are lost and come back while a job runs: real agents, behind scripts that stand in for ssh."""

import os
import signal
import time
from contextlib import closing
from dataclasses import replace

import pytest

from tests.launch.agents.stand_ins import host, python_task, wait_for_message
from tests.waiting import wait_until
from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.inbox import AgentLost, HostReady, Note
from tfdist.launch.agents.messages import Exited, Heartbeat, Inspect, Inspected, Output, Reserve, Reserved
from tfdist.launch.errors import TfdistError
from tfdist.launch.policy import Policy
from tfdist.launch.supervision.rejoin import Rejoin

POLICY = Policy(start_timeout_s=20.0, grace_s=0.5, rejoin_s=0.2)


def lose(fleet, rejoin, one):
    """The agent of a host is killed, and the job has noticed it."""
    os.killpg(fleet.channels[one].process.pid, signal.SIGKILL)
    wait_for_message(fleet.inbox, AgentLost)
    rejoin.lose(one)


def arrivals(inbox, until):
    """All messages until one of this kind, which is the last."""
    seen = []
    while not seen or not isinstance(seen[-1].message, until):
        seen.append(inbox.get(20.0))
    return seen


def test_a_lost_host_is_connected_again_and_can_run_tasks(tmp_path):
    one = host("a")
    with connect([one], POLICY) as fleet, closing(Rejoin(fleet, lambda: [one])) as rejoin:
        rejoin.start()
        lose(fleet, rejoin, one)
        assert fleet.hellos == fleet.channels == {}
        assert wait_for_message(fleet.inbox, HostReady).message.host == "a"
        assert rejoin.take() == [one]
        assert list(fleet.hellos) == [one]
        fleet.channels[one].send(python_task("print('hello')"))
        assert wait_for_message(fleet.inbox, Output).message.text == "hello\n"
        assert wait_for_message(fleet.inbox, Exited).message.code == 0


def test_a_host_that_does_not_answer_is_tried_again_and_the_reason_is_said_once(tmp_path):
    up, refused = tmp_path / "up", tmp_path / "refused"
    one = host("a", f'[ -e {up} ] || {{ echo >>{refused}; echo No route to host >&2; exit 255; }}; exec "$@"')
    up.touch()
    with connect([one], POLICY) as fleet, closing(Rejoin(fleet, lambda: [one])) as rejoin:
        rejoin.start()
        up.unlink()
        lose(fleet, rejoin, one)
        wait_until(lambda: refused.exists() and len(refused.read_text()) >= 2)
        assert rejoin.take() == []
        up.touch()
        notes = [each.message for each in arrivals(fleet.inbox, HostReady) if isinstance(each.message, Note)]
        assert [note.host for note in notes] == ["a"]
        assert "No route to host" in notes[0].text


def test_a_host_that_is_new_is_connected_and_used_hosts_are_left_alone(tmp_path):
    one, two = host("a"), host("b")
    with connect([one], POLICY) as fleet, closing(Rejoin(fleet, lambda: [one, two])) as rejoin:
        rejoin.start()
        before = fleet.channels[one]
        assert wait_for_message(fleet.inbox, HostReady).message.host == "b"
        assert rejoin.take() == [two]
        assert fleet.channels[one] is before


@pytest.mark.slow
def test_no_message_of_an_agent_that_waits_reaches_the_job():
    one = host("a")
    with connect([], POLICY) as fleet, closing(Rejoin(fleet, lambda: [one])) as rejoin:
        rejoin.start()
        seen = [type(arrival.message) for arrival in arrivals(fleet.inbox, HostReady)]
        assert seen == [HostReady]
        rejoin.take()
        assert wait_for_message(fleet.inbox, Heartbeat).host == one


def test_an_agent_that_was_lost_while_it_waited_is_not_taken():
    one = host("a")
    with connect([], POLICY) as fleet, closing(Rejoin(fleet, lambda: [one])) as rejoin:
        rejoin.start()
        wait_for_message(fleet.inbox, HostReady)
        waiting = rejoin.channels[one]
        os.killpg(waiting.process.pid, signal.SIGKILL)
        wait_until(lambda: waiting.lost)
        wait_for_message(fleet.inbox, HostReady)  # another one
        assert rejoin.take() == [one]
        assert fleet.channels[one] is not waiting


def test_the_predecessor_of_an_agent_is_ended_with_its_tasks(survivors):
    """The connection was cut, so the agent still runs and has not noticed it."""
    one = host("a", 'exec 3<&0; setsid "$@" <&3 & wait')  # the agent outlives the script
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(601)"
    with connect([one], POLICY) as fleet, closing(Rejoin(fleet, lambda: [one])) as rejoin:
        rejoin.start()
        first = fleet.channels[one]
        first.send(python_task(stubborn))
        wait_for_message(fleet.inbox, Output)
        stdin = os.dup(first.process.stdin.fileno())  # stays open, as with a link that is down
        try:
            assert any("sleep(601)" in process for process in survivors())
            rejoin.lose(one)
            wait_for_message(fleet.inbox, HostReady)
            assert [process for process in survivors() if "sleep(601)" in process or first.mark in process] == []
        finally:
            os.close(stdin)


def test_what_a_lost_agent_has_sent_is_not_taken_for_its_successors():
    one = host("a")
    with connect([one], POLICY) as fleet, closing(Rejoin(fleet, lambda: [one])) as rejoin:
        rejoin.start()
        fleet.channels[one].send(python_task("print('old')"))
        first = fleet.inbox.get(20.0)
        while not isinstance(first.message, Output):
            first = fleet.inbox.get(20.0)
        os.killpg(fleet.channels[one].process.pid, signal.SIGKILL)
        assert fleet.channels[one].ended.wait(60.0)  # its exit and its loss are in the inbox, unread
        rejoin.lose(one)
        later = arrivals(fleet.inbox, HostReady)
        assert [type(arrival.message) for arrival in later] == [HostReady]
        rejoin.take()
        replies = fleet.ask({one: Inspect(())}, "inspect", 10.0)
        assert isinstance(replies[one], Inspected)
        assert fleet.lost == {}


def test_ports_can_be_reserved_again():
    one = host("a")
    with connect([one], POLICY) as fleet:
        reply = fleet.ask({one: Reserve((0,))}, "reserve ports", 10.0)[one]
        assert isinstance(reply, Reserved)
        again = fleet.ask({one: Reserve(reply.ports)}, "reserve ports", 10.0)[one]
        assert again == Reserved(reply.ports, request=again.request)


@pytest.mark.parametrize("script", ['exec "$@"', "exec sleep 600"], ids=["ready", "silent"])
def test_the_end_of_the_job_ends_the_thread_and_its_agents(script, survivors):
    with connect([], POLICY) as fleet:
        rejoin = Rejoin(fleet, lambda: [host("a", script)])
        rejoin.start()
        while not rejoin.channels:
            time.sleep(0.01)
        rejoin.close()
        assert not rejoin._thread.is_alive()
    assert survivors() == []


def test_a_missing_transport_is_tried_again(tmp_path):
    program, rounds = tmp_path / "connect", []
    one = replace(host("a"), prefix=(str(program),))
    with connect([], POLICY) as fleet, closing(Rejoin(fleet, lambda: rounds.append(1) or [one])) as rejoin:
        rejoin.start()
        while len(rounds) < 2:  # the first one has failed
            time.sleep(0.01)
        program.write_text('#!/bin/sh\nexec "$@"\n')
        program.chmod(0o755)
        assert wait_for_message(fleet.inbox, HostReady).message.host == "a"


def test_a_change_of_the_hosts_that_is_wrong_is_reported_and_the_hosts_stay():
    one, two = host("a"), host("b")

    def wanted():
        if rejoin.wanted == (one,):
            raise TfdistError("hosts.txt, line 2: wrong")
        return (one, two)

    with connect([one], POLICY) as fleet, closing(Rejoin(fleet, wanted)) as rejoin:
        rejoin.start()
        assert wait_for_message(fleet.inbox, Note).message == Note("tfdist", "hosts.txt, line 2: wrong")
        assert rejoin.wanted == (one,)
