import socket
import threading
import time
from contextlib import ExitStack, closing, suppress

import pytest

from tests.ports import free_ports, serve_reserved
from tests.waiting import wait_until
from tfdist.launch.agent_program import probe
from tfdist.launch.agent_program.probe import ProbeServer, dial, dial_all, measure_link
from tfdist.launch.agent_program.system import reserve
from tfdist.launch.agents.messages import LinkSpeed

TOKEN = "a-token"
SOON_S = 2.0


def has_ipv6():
    """Whether the loopback interface has an IPv6 address; in containers it often has none."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture
def reserved():
    """A port that an agent has reserved: bound, not listening."""
    with closing(reserve(0)) as holder:
        yield holder.getsockname()[1]


@pytest.fixture
def listening(reserved):
    """The port of a probe server."""
    with closing(ProbeServer([reserved], TOKEN)):
        yield reserved


def test_a_listening_peer_is_reached_at_each_of_its_addresses(listening):
    for address in ("127.0.0.1", "localhost"):
        assert dial(address, listening, TOKEN, SOON_S) == ""


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6")
def test_a_peer_is_reached_over_ipv6(listening):
    assert dial("::1", listening, TOKEN, SOON_S) == ""


def test_a_reserved_port_without_a_server_refuses(reserved):
    assert dial("127.0.0.1", reserved, TOKEN, SOON_S) == "refused"


def test_the_server_of_another_job_is_detected(listening):
    assert dial("127.0.0.1", listening, "another", SOON_S) == "something else answers there"
    assert dial("127.0.0.1", listening, TOKEN + "-longer", 0.3) in ("timed out", "something else answers there")


def test_a_stranger_gets_no_byte_of_the_token(listening):
    for data in (b"", b"x" * 100, TOKEN[3:].encode()):
        with socket.create_connection(("127.0.0.1", listening), timeout=5) as stranger, suppress(OSError):
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)  # fails if it is closed at once
            assert stranger.recv(100) == b""


def test_idle_strangers_are_dropped_and_keep_nobody_out(reserved, monkeypatch):
    monkeypatch.setattr(probe, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(probe, "TOKEN_S", 0.3)
    with closing(ProbeServer([reserved], TOKEN)), ExitStack() as stack:
        before = threading.active_count()
        for _ in range(12):
            stack.enter_context(socket.create_connection(("127.0.0.1", reserved), timeout=5))
        assert dial("127.0.0.1", reserved, TOKEN, 20.0) == ""
        assert threading.active_count() <= before + 4


def test_a_server_that_echoes_is_detected():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.sendall(connection.recv(100) * 2)

        threading.Thread(target=serve, daemon=True).start()
        assert dial("127.0.0.1", server.getsockname()[1], TOKEN, SOON_S) == "something else answers there"


def test_another_kind_of_server_is_detected():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        port = server.getsockname()[1]
        assert dial("127.0.0.1", port, TOKEN, SOON_S) == "something else answers there"


def test_a_server_that_sends_nothing_times_out():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert dial("127.0.0.1", server.getsockname()[1], TOKEN, 0.2) == "timed out"


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", "x" * 70])
def test_an_unknown_name_is_not_resolved(name):
    assert dial(name, 1, TOKEN, SOON_S) == "not resolved"


def test_other_failures_have_the_message_of_the_system():
    assert dial("255.255.255.255", 9, TOKEN, SOON_S) not in ("", "refused", "timed out", "not resolved")


def test_results_are_in_order_and_timeouts_run_in_parallel(listening):
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        slow = ("127.0.0.1", silent_server.getsockname()[1])
        targets = [("127.0.0.1", listening), *[slow] * 30, ("127.0.0.1", listening)]
        start = time.monotonic()
        assert dial_all(targets, TOKEN, 0.5) == ["", *["timed out"] * 30, ""]
        assert time.monotonic() - start < 30 * 0.5 / 2


def test_no_target_is_no_error():
    assert dial_all([], TOKEN, SOON_S) == []


def test_round_trip_and_throughput_of_the_loopback_are_sane(listening):
    speed = LinkSpeed(**measure_link("127.0.0.1", listening, TOKEN, 0.2))
    assert speed.reason == ""
    assert 0 < speed.rtt_s < 0.5
    assert 1e6 < speed.bytes_per_s < 1e12


def test_a_failed_measurement_has_zeros_and_a_reason(listening):
    speed = measure_link("127.0.0.1", listening, "another", 0.05)
    assert speed == {"rtt_s": 0.0, "bytes_per_s": 0.0, "reason": "something else answers there"}


def test_a_broken_connection_is_a_reason():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            connection.sendall(TOKEN[3:].encode())
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        speed = measure_link("127.0.0.1", server.getsockname()[1], TOKEN, 0.05)
        assert speed["reason"]
        assert speed["bytes_per_s"] == 0


def test_closing_ends_the_thread_and_keeps_the_port_reserved(reserved):
    server = ProbeServer([reserved], TOKEN)
    assert dial("127.0.0.1", reserved, TOKEN, SOON_S) == ""
    server.close()
    assert dial("127.0.0.1", reserved, TOKEN, SOON_S) == "refused"
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "probe"])
    with pytest.raises(OSError, match="in use"):
        reserve(reserved)
    with closing(ProbeServer([reserved], TOKEN)):
        assert dial("127.0.0.1", reserved, TOKEN, SOON_S) == ""


def test_closing_does_not_wait_for_open_connections(reserved):
    server = ProbeServer([reserved], TOKEN)
    with socket.create_connection(("127.0.0.1", reserved), timeout=5) as peer:
        peer.sendall(TOKEN[:3].encode())
        assert peer.recv(len(TOKEN)) == TOKEN[3:].encode()
        start = time.monotonic()
        server.close()
        assert time.monotonic() - start < 5


def test_a_busy_port_is_an_error_and_closes_the_others(reserved):
    with socket.create_server(("", 0)) as taken, pytest.raises(OSError, match="in use"):
        ProbeServer([reserved, taken.getsockname()[1]], TOKEN)
    assert dial("127.0.0.1", reserved, TOKEN, SOON_S) == "refused"


def test_a_task_can_listen_after_the_server_is_closed(reserved):
    ProbeServer([reserved], TOKEN).close()
    with serve_reserved(reserved):
        assert dial("127.0.0.1", reserved, TOKEN, 0.2) == "timed out"  # a task sends no token


def test_the_port_that_another_program_uses_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match="in use") as caught:
            ProbeServer([*free_ports(1), port, *free_ports(1)], "token")
    assert caught.value.filename == port
