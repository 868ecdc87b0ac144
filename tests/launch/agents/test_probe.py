import socket
import threading
import time
from contextlib import closing

import pytest

from tfdist.launch.agents.agent import reserve
from tfdist.launch.agents.probe import ProbeServer, dial, dial_all, measure, measured

TOKEN = "a-token"
SOON_S = 2.0


def has_ipv6():
    """Whether the loopback has an IPv6 address; in containers it often has none."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture
def held():
    """A port that is held as an agent holds it: bound, not listening."""
    with closing(reserve(0)) as holder:
        yield holder.getsockname()[1]


@pytest.fixture
def listening(held):
    """The port of a listener."""
    with closing(ProbeServer([held], TOKEN)):
        yield held


def until(true):
    """Wait for it."""
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_peer_that_listens_is_reached_by_each_of_its_addresses(listening):
    for address in ("127.0.0.1", "localhost"):
        assert dial(address, listening, TOKEN, SOON_S) == ""


@pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6 here")
def test_a_peer_is_reached_over_ipv6_as_tensorflows_servers_are(listening):
    assert dial("::1", listening, TOKEN, SOON_S) == ""


def test_a_held_port_where_nobody_listens_refuses(held):
    assert dial("127.0.0.1", held, TOKEN, SOON_S) == "refused"


def test_another_jobs_listener_is_told_apart(listening):
    assert dial("127.0.0.1", listening, "another", SOON_S) == "something else answers there"
    assert dial("127.0.0.1", listening, TOKEN + "-longer", 0.3) in ("timed out", "something else answers there")


def test_a_server_of_another_kind_is_told_apart():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        port = server.getsockname()[1]
        assert dial("127.0.0.1", port, TOKEN, SOON_S) == "something else answers there"


def test_a_server_that_says_nothing_times_out():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert dial("127.0.0.1", server.getsockname()[1], TOKEN, 0.2) == "timed out"


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", "x" * 70])
def test_a_name_that_means_nothing_is_not_resolved(name):
    assert dial(name, 1, TOKEN, SOON_S) == "not resolved"


def test_other_reasons_are_in_the_systems_words():
    assert dial("255.255.255.255", 9, TOKEN, SOON_S) not in ("", "refused", "timed out", "not resolved")


def test_all_answers_come_in_the_order_asked_and_slow_ones_wait_together(listening):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        slow = ("127.0.0.1", mute.getsockname()[1])
        targets = [("127.0.0.1", listening), *[slow] * 30, ("127.0.0.1", listening)]
        began = time.monotonic()
        assert dial_all(targets, TOKEN, 0.5) == ["", *["timed out"] * 30, ""]
        assert time.monotonic() - began < 30 * 0.5 / 2


def test_nobody_to_dial_is_no_error():
    assert dial_all([], TOKEN, SOON_S) == []


def test_round_trip_and_throughput_of_the_loopback_are_sane(listening):
    rtt_s, bytes_per_s = measure("127.0.0.1", listening, TOKEN, 0.2)
    assert 0 < rtt_s < 0.5
    assert 1e6 < bytes_per_s < 1e12


def test_a_measurement_is_a_message_with_the_reason_where_it_was_not_possible(listening, held):
    told = measured("127.0.0.1", listening, TOKEN, 0.05)
    assert (told["reason"], told["bytes_per_s"] > 0) == ("", True)
    told = measured("127.0.0.1", listening, "another", 0.05)
    assert told == {"rtt_s": 0.0, "bytes_per_s": 0.0, "reason": "something else answers there"}


def test_a_peer_that_breaks_off_is_a_reason_and_no_traceback():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            connection.sendall(TOKEN.encode())
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        told = measured("127.0.0.1", server.getsockname()[1], TOKEN, 0.05)
        assert told["reason"]
        assert told["bytes_per_s"] == 0


def test_closing_ends_the_thread_and_leaves_the_port_held_but_silent(held):
    listener = ProbeServer([held], TOKEN)
    assert dial("127.0.0.1", held, TOKEN, SOON_S) == ""
    listener.close()
    assert dial("127.0.0.1", held, TOKEN, SOON_S) == "refused"
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "probe"])
    with pytest.raises(OSError, match="in use"):
        reserve(held)
    with closing(ProbeServer([held], TOKEN)):  # as often as one likes
        assert dial("127.0.0.1", held, TOKEN, SOON_S) == ""


def test_closing_does_not_wait_for_a_peer_that_holds_on(held):
    listener = ProbeServer([held], TOKEN)
    with socket.create_connection(("127.0.0.1", held), timeout=5) as peer:
        assert peer.recv(len(TOKEN)) == TOKEN.encode()
        began = time.monotonic()
        listener.close()
        assert time.monotonic() - began < 5


def test_a_port_that_somebody_listens_on_is_an_error_and_leaves_none_open(held):
    with socket.create_server(("", 0)) as taken, pytest.raises(OSError, match="in use"):
        ProbeServer([held, taken.getsockname()[1]], TOKEN)
    assert dial("127.0.0.1", held, TOKEN, SOON_S) == "refused"


def test_a_task_can_listen_once_the_listener_is_closed(held):
    ProbeServer([held], TOKEN).close()
    with socket.socket() as task:
        task.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        task.bind(("", held))
        task.listen()
        assert dial("127.0.0.1", held, TOKEN, 0.2) == "timed out"  # it does not greet
