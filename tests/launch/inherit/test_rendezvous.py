"""The start barrier, with real sockets: threads of this process stand in for the launchers of other tasks."""

import errno
import json
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import pytest

from tests.ports import free_ports, serve_reserved
from tests.waiting import wait_until
from tfdist.launch.agent_program.json_lines import to_line
from tfdist.launch.agent_program.system import listening_ports, reserve
from tfdist.launch.agents.inbox import Interrupted
from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.inherit import leader as leader_module
from tfdist.launch.inherit import rendezvous as module
from tfdist.launch.inherit.leader import Key, Rendezvous
from tfdist.launch.inherit.rendezvous import meet

pytestmark = pytest.mark.slow

LONG_S = 30.0
SHORT_S = 2.0


@pytest.fixture
def tasks():
    """The views of a chief, two workers and a parameter server."""
    chief, one, two, ps = (f"localhost:{port}" for port in free_ports(4))
    cluster = Cluster({"chief": (chief,), "worker": (one, two), "ps": (ps,), "evaluator": ("nowhere.invalid:1",)})
    names = (Task("chief", 0), Task("worker", 0), Task("worker", 1), Task("ps", 0))
    return {task.name: Rendezvous(cluster, task, Key("3")) for task in names}


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


def port_of(rendezvous):
    return rendezvous.cluster.port(rendezvous.task)


def ignore(_):
    pass


def introduce(connection, task, key):
    """Prove to the leader that this is a task; returns its answer."""
    with connection.makefile("r") as lines:
        nonce = json.loads(lines.readline())["nonce"]
        hello = {"task": task, "nonce": "mine", "proof": key.proof(nonce, task)}
        connection.sendall(to_line(hello))
        return json.loads(lines.readline())


def test_all_start_when_the_last_one_is_there(tasks, pool):
    last = tasks.pop("worker-1")
    waiting = [pool.submit(meet, each, LONG_S, ignore) for each in tasks.values()]
    wait_until(lambda: port_of(tasks["chief-0"]) in listening_ports())
    assert not any(each.done() for each in waiting)
    meet(last, LONG_S, ignore)
    for each in waiting:
        each.result(timeout=10)


def test_the_port_is_free_for_tensorflow_at_once(tasks, pool):
    for each in [pool.submit(meet, each, LONG_S, ignore) for each in tasks.values()]:
        each.result(timeout=10)
    for each in tasks.values():
        with closing(reserve(port_of(each))), serve_reserved(port_of(each)):
            pass


def test_without_a_chief_worker_0_gathers(pool):
    cluster = Cluster({"worker": tuple(f"127.0.0.1:{port}" for port in free_ports(3))})
    views = [Rendezvous(cluster, Task("worker", index)) for index in range(3)]
    assert {view.leader for view in views} == {Task("worker", 0)}
    for each in [pool.submit(meet, view, LONG_S, ignore) for view in views]:
        each.result(timeout=10)


def test_the_missing_are_named_by_all(tasks, pool):
    tasks.pop("worker-1")
    peers = [pool.submit(meet, each, LONG_S, ignore) for name, each in tasks.items() if name != "chief-0"]
    with pytest.raises(TfdistError) as leader:
        meet(tasks["chief-0"], 3.0, ignore)
    says = "still missing after --start-timeout 3 s: worker-1; look at the logs there"
    assert (leader.value.exit_code, str(leader.value).startswith(says)) == (75, True)
    for peer in peers:
        error = peer.exception(timeout=10)
        assert error.exit_code == 75
        assert str(error).startswith(says)
        assert str(error).endswith("(says chief-0)")


def test_a_peer_that_gives_up_ends_the_wait_of_all(tasks, pool, monkeypatch):
    monkeypatch.setattr(module, "TELL_S", 0.5)
    tasks.pop("worker-1")
    others = [pool.submit(meet, tasks[name], LONG_S, ignore) for name in ("chief-0", "ps-0")]
    with pytest.raises(TfdistError, match=r"still missing after --start-timeout .*: worker-1") as gave_up:
        meet(tasks["worker-0"], 4.0, ignore)
    for other in others:
        assert str(other.exception(timeout=10)) == f"{gave_up.value} (says worker-0)"


PROBLEM = TfdistError("no TensorFlow here; install it")


@pytest.mark.parametrize("bad", ["chief-0", "worker-0", "ps-0"])
@pytest.mark.parametrize("last", [True, False])
def test_none_starts_if_one_cannot_and_all_are_told(bad, last, tasks, pool):
    refused = tasks.pop(bad)
    if not last:
        told = pool.submit(meet, refused, LONG_S, ignore, PROBLEM)
    others = [pool.submit(meet, each, LONG_S, ignore) for each in tasks.values()]
    if last:
        wait_until(lambda: bad == "chief-0" or port_of(tasks["chief-0"]) in listening_ports())
        told = pool.submit(meet, refused, LONG_S, ignore, PROBLEM)
    assert told.exception(timeout=20) is PROBLEM
    for other in others:
        assert str(other.exception(timeout=20)) == f"{PROBLEM} (says {bad})"


def test_a_task_that_comes_after_the_problem_is_told_too(tasks, pool):
    late = tasks.pop("worker-1")
    leader = pool.submit(meet, tasks["chief-0"], LONG_S, ignore)
    with pytest.raises(TfdistError, match="no TensorFlow here"):
        meet(tasks["worker-0"], LONG_S, ignore, PROBLEM)
    for each in (late, tasks["ps-0"]):
        with pytest.raises(TfdistError, match=r"no TensorFlow here; install it \(says worker-0\)"):
            meet(each, LONG_S, ignore)
    assert str(leader.exception(timeout=10)) == f"{PROBLEM} (says worker-0)"


def test_a_task_that_cannot_start_does_not_wait_long_for_a_missing_leader(tasks, monkeypatch):
    monkeypatch.setattr(module, "TELL_S", 0.5)
    with pytest.raises(TfdistError, match="no TensorFlow here"):
        meet(tasks["worker-0"], LONG_S, ignore, PROBLEM)


def test_a_signal_that_has_come_before_ends_the_wait(tasks):
    with pytest.raises(TfdistError, match="interrupted before any task was started") as caught:
        meet(tasks["worker-0"], LONG_S, ignore, earlier=lambda: Interrupted(15))
    assert caught.value.exit_code == 143


def test_a_missing_leader_is_named_with_the_reason(tasks):
    address = tasks["worker-0"].peers["chief-0"]
    with pytest.raises(TfdistError) as error:
        meet(tasks["worker-0"], SHORT_S, ignore)
    assert error.value.exit_code == 75
    assert f": chief-0 at {address} (refused)" in str(error.value)


def test_a_leader_that_waits_reports_who_is_missing(tasks, monkeypatch):
    monkeypatch.setattr(module, "REPORT_S", 0.1)
    lines = []
    with pytest.raises(TfdistError):
        meet(tasks["chief-0"], SHORT_S, lines.append)
    assert "waiting for worker-0, worker-1, ps-0" in lines


def test_names_that_are_missing_in_dns_are_reported(monkeypatch):
    monkeypatch.setattr(module, "REPORT_S", 0.1)
    here, there = free_ports(2)
    cluster = Cluster({"worker": (f"no-such-host.invalid:{there}", f"localhost:{here}")})
    lines = []
    with pytest.raises(TfdistError, match=r": the name of worker-0 \(no-such-host.invalid\) in DNS"):
        meet(Rendezvous(cluster, Task("worker", 1)), SHORT_S, lines.append)
    assert "waiting for the name of worker-0 (no-such-host.invalid) in DNS" in lines


def test_tasks_of_another_attempt_do_not_meet(tasks, pool):
    stale = replace(tasks["worker-0"], key=Key("2"))
    told = []
    old = pool.submit(meet, stale, 3.0, ignore)
    leader = pool.submit(meet, tasks["chief-0"], LONG_S, told.append)
    error = old.exception(timeout=10)
    assert error.exit_code == 75
    assert ": chief-0 of this attempt (TFDIST_ATTEMPT or TFDIST_BARRIER_SECRET is different there)" in str(error)
    assert not leader.done()
    for each in [pool.submit(meet, tasks[name], LONG_S, ignore) for name in ("worker-0", "worker-1", "ps-0")]:
        each.result(timeout=10)
    leader.result(timeout=10)


def test_a_peer_that_was_restarted_is_waited_for(tasks, pool):
    waiting = [pool.submit(meet, tasks[name], LONG_S, ignore) for name in ("chief-0", "worker-1")]
    wait_until(lambda: port_of(tasks["chief-0"]) in listening_ports())
    with socket.create_connection(("localhost", port_of(tasks["chief-0"]))) as killed:
        assert "missing" in introduce(killed, "worker-0", Key("3"))  # it came, and leaves again
    last = pool.submit(meet, tasks["ps-0"], LONG_S, ignore)
    assert wait([last, *waiting], timeout=1).done == set()
    for each in (pool.submit(meet, tasks["worker-0"], LONG_S, ignore), last, *waiting):
        each.result(timeout=10)


def test_another_program_at_the_leaders_address_is_recognized(tasks):
    with socket.create_server(("", port_of(tasks["chief-0"]))) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                connection.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(TfdistError, match="something else answers there"):
            meet(tasks["worker-0"], SHORT_S, ignore)


def test_strangers_at_the_leaders_port_do_no_harm(tasks, pool):
    leader = pool.submit(meet, tasks["chief-0"], LONG_S, ignore)
    port = port_of(tasks["chief-0"])
    wait_until(lambda: port in listening_ports())
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b'{"task": "worker-1"}\n', b'{"failed": "no", "by": "ps-0"}\n'):
        with socket.create_connection(("localhost", port)) as stranger:
            stranger.sendall(data)
    with socket.create_connection(("localhost", port)):  # stays, and says nothing
        for each in [pool.submit(meet, tasks[name], LONG_S, ignore) for name in tasks if name != "chief-0"]:
            each.result(timeout=10)
        leader.result(timeout=10)


@pytest.mark.parametrize("secret", ["", "s3cret"])
@pytest.mark.parametrize("proof", ["\udc80", "x\ud800", "\u00e9", "0" * 64, "0" * 10_000, 5, None, ["x"]])
def test_a_proof_of_any_other_form_costs_its_connection_only(proof, secret, tasks, pool):
    tasks = with_secret(tasks, secret)
    leader = pool.submit(meet, tasks["chief-0"], LONG_S, ignore)
    port = port_of(tasks["chief-0"])
    wait_until(lambda: port in listening_ports())
    with socket.create_connection(("localhost", port), timeout=10) as stranger, stranger.makefile("rb") as lines:
        assert b"nonce" in lines.readline()
        stranger.sendall(to_line({"task": "worker-1", "nonce": "x", "proof": proof}))
        assert all(b"refused" in line for line in lines)
    assert not leader.done()
    for each in [pool.submit(meet, tasks[name], LONG_S, ignore) for name in tasks if name != "chief-0"]:
        each.result(timeout=10)
    leader.result(timeout=10)


def test_a_peer_that_gives_up_while_the_others_start_is_named(tasks, pool):
    leader = pool.submit(meet, tasks["chief-0"], LONG_S, ignore)
    port = port_of(tasks["chief-0"])
    wait_until(lambda: port in listening_ports())
    with socket.create_connection(("localhost", port), timeout=10) as peer, peer.makefile("r") as lines:
        nonce = json.loads(lines.readline())["nonce"]
        peer.sendall(to_line({"task": "worker-1", "nonce": "n", "proof": Key("3").proof(nonce, "worker-1")}))
        assert "missing" in json.loads(lines.readline())
        others = [pool.submit(meet, tasks[name], LONG_S, ignore) for name in ("worker-0", "ps-0")]
        while "go" not in json.loads(lines.readline()):
            pass
        peer.sendall(to_line({"failed": "too late", "by": "worker-1"}))
    assert str(leader.exception(timeout=10)) == "too late (says worker-1)"
    for other in others:
        other.result(timeout=10)


def test_a_peer_that_says_more_than_it_should_is_dropped(tasks, pool):
    leader = pool.submit(meet, tasks["chief-0"], 3.0, ignore)
    port = port_of(tasks["chief-0"])
    wait_until(lambda: port in listening_ports())
    with socket.create_connection(("localhost", port), timeout=10) as peer:
        assert "missing" in introduce(peer, "worker-1", Key("3"))
        peer.sendall(to_line({"go": True}) * 1000)
        with suppress(ConnectionResetError):
            assert all(b"missing" in line for line in peer.makefile("rb"))
    assert ": worker-0, worker-1, ps-0;" in str(leader.exception(timeout=10))


@pytest.mark.parametrize(
    "lines",
    [
        [{"proof": "\udc80"}, {"go": True}],
        [{"nonce": "\udc80\ud800"}, {"nonce": "n"}],
        [{"nonce": "x" * 100_000}],
        [{"nonce": "n"}, {"proof": "0" * 64, "missing": "worker-1"}, {"go": True}],
        [{"nonce": ["n"]}],
        [{"failed": "no"}],
        [{"missing": "x" * (1 << 20)}],
    ],
)
def test_a_false_leader_cannot_start_or_end_a_peer(lines, tasks):
    with socket.create_server(("", port_of(tasks["chief-0"]))) as server:

        def serve():
            with suppress(OSError):  # the server is closed, or the peer has hung up
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(ConnectionError):
                        connection.sendall(b"".join(map(to_line, lines)))
                        connection.recv(1000)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(TfdistError, match=r"something else answers there|closed") as error:
            meet(tasks["worker-0"], SHORT_S, ignore)
    assert error.value.exit_code == 75


def test_the_refusal_of_a_false_leader_is_one_line(tasks):
    with socket.create_server(("", port_of(tasks["chief-0"]))) as server:

        def serve():
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(to_line({"refused": "x\ntfdist: ok\n[worker-0] \x1b[2Jdone"}))

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(TfdistError, match=r"chief-0 of this attempt \(x tfdist: ok \[worker-0\] done\)"):
            meet(tasks["worker-0"], SHORT_S, ignore)


@pytest.mark.parametrize("name", ["chief-0", "worker-0"])
def test_a_port_in_use_is_refused(tasks, name):
    port = port_of(tasks[name])
    with (
        socket.create_server(("", port)),
        pytest.raises(TfdistError, match=f"port {port} of {name} cannot be used") as error,
    ):
        meet(tasks[name], LONG_S, ignore)
    assert error.value.exit_code == 2


def test_an_evaluator_and_the_only_task_wait_for_nobody(tasks):
    meet(replace(tasks["chief-0"], task=Task("evaluator", 0)), SHORT_S, ignore)
    meet(Rendezvous(Cluster({"worker": ("nowhere.invalid:1",)}), Task("worker", 0)), SHORT_S, ignore)


# --- strangers on the network


def with_secret(tasks, secret):
    return {name: replace(task, key=Key("3", secret)) for name, task in tasks.items()}


def test_tasks_with_the_same_secret_meet_and_a_stranger_is_not_counted(tasks, pool):
    tasks = with_secret(tasks, "s3cret")
    leader = pool.submit(meet, tasks["chief-0"], LONG_S, ignore)
    wait_until(lambda: port_of(tasks["chief-0"]) in listening_ports())
    for key in (Key("3"), Key("3", "guess")):
        with socket.create_connection(("localhost", port_of(tasks["chief-0"]))) as stranger:
            answer = introduce(stranger, "worker-1", key)
            stranger.sendall(to_line({"failed": "the end", "by": "worker-1"}))
        assert set(answer) == {"refused"}
        assert "3" not in answer["refused"]
    assert not leader.done()
    for each in [pool.submit(meet, tasks[name], LONG_S, ignore) for name in tasks if name != "chief-0"]:
        each.result(timeout=10)
    leader.result(timeout=10)


@pytest.mark.parametrize("here", ["", "s3cret"])
def test_a_secret_on_one_side_is_named_on_both(here, tasks, pool, monkeypatch):
    monkeypatch.setattr(module, "REPORT_S", 0.1)
    lines = []
    chief = with_secret(tasks, "" if here else "s3cret")["chief-0"]
    leader = pool.submit(meet, chief, 4.0, lines.append)
    with pytest.raises(
        TfdistError, match=r"chief-0 of this attempt \(TFDIST_ATTEMPT or TFDIST_BARRIER_SECRET is different"
    ):
        meet(with_secret(tasks, here)["worker-0"], 2.0, ignore)
    assert leader.exception(timeout=10).exit_code == 75
    assert any("worker-0 (another TFDIST_ATTEMPT or TFDIST_BARRIER_SECRET)" in line for line in lines)


def test_a_leader_without_the_secret_is_not_believed(tasks):
    tasks = with_secret(tasks, "s3cret")
    with socket.create_server(("", port_of(tasks["chief-0"]))) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.sendall(to_line({"nonce": "n"}))
                connection.sendall(to_line({"go": True}))
                connection.recv(1000)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(TfdistError, match="something else answers there"):
            meet(tasks["worker-0"], SHORT_S, ignore)


def test_idle_connections_are_closed_and_keep_nobody_out(tasks, pool, monkeypatch):
    monkeypatch.setattr(leader_module, "MOST_STRANGERS", 8)
    monkeypatch.setattr(leader_module, "INTRODUCTION_S", 0.5)
    leader = pool.submit(meet, tasks["chief-0"], LONG_S, ignore)
    port = port_of(tasks["chief-0"])
    wait_until(lambda: port in listening_ports())
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("localhost", port), timeout=10)) for _ in range(150)]
        with idle[-1].makefile("rb") as lines:
            assert b"nonce" in lines.readline()
            assert lines.readline() == b""  # closed by the leader
        for each in [pool.submit(meet, tasks[name], LONG_S, ignore) for name in tasks if name != "chief-0"]:
            each.result(timeout=10)
        leader.result(timeout=10)


def test_without_descriptors_nothing_spins(tasks, pool, monkeypatch):
    accepted, accept, server = [], socket.socket.accept, port_of(tasks["chief-0"])

    def counted(listening):
        accepted.append(time.monotonic())
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", counted)
    leader = pool.submit(meet, tasks["chief-0"], LONG_S, ignore)
    wait_until(lambda: server in listening_ports())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(20)]
        with socket.socket() as free:
            lowest = free.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        try:
            for client in clients:
                client.connect(("127.0.0.1", server))
            with pytest.raises(OSError, match=r".") as error:
                socket.socket()
            assert error.value.errno == errno.EMFILE
            wait_until(lambda: len(accepted) >= 5)
            assert accepted[4] - accepted[0] > 0.5  # between two attempts without a descriptor it pauses
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for each in [pool.submit(meet, tasks[name], LONG_S, ignore) for name in tasks if name != "chief-0"]:
        each.result(timeout=10)
    leader.result(timeout=10)
