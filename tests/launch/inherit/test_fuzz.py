"""Any messages of strangers and peers at the start barrier: it opens for the others, in little memory and time."""

import json
import select
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.launch.agents.test_fuzz import BROKEN, TEXTS, VALUES, fields_of, mostly, text_of
from tests.ports import free_ports, serve_reserved
from tests.waiting import wait_until
from tfdist.launch.agent_program.json_lines import to_line
from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.inherit.leader import BarrierMessage, Key, Rendezvous, given_up
from tfdist.launch.inherit.rendezvous import meet

pytestmark = pytest.mark.slow

SESSIONS_OF_A_PROCESS = 20
SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
"""Without smaller examples of a failure: each would take as long as a launch."""
LINES = 2
"""Messages over each connection."""
WAIT_S = 30.0
LEADER, *PEERS = (Task("worker", index) for index in range(4))
HOSTILE = PEERS[0].name
"""The peer that has the key, and misbehaves until the one that does not takes its place; also the one under test."""
FAKED = "x\ntfdist: faked\r\n[worker-0] faked\u2028faked\x1b[2J"
REASONS = TEXTS | st.just(FAKED)
FIELDS = {**fields_of(BarrierMessage), "refused": REASONS, "missing": REASONS, "failed": REASONS}
ENDS = ("failed", "go")
"""What only a peer with the key, or a leader with it, may say: it ends the wait."""


def messages(names):
    """Lines with these fields: of the right types, with a wrong one, or something else."""
    message = st.fixed_dictionaries({}, optional={name: FIELDS[name] for name in names})
    wrong = VALUES | st.sampled_from([1 << 63, 10**400, [[]], {}, "x" * 60_000, "\udc80" * 64])
    mutated = st.builds(lambda message, name, value: {**message, name: value}, message, st.sampled_from(names), wrong)
    broken = st.sampled_from([*BROKEN, "\n" * 60_000, "{}\n" * 20_000, '{"x": [' + "{}," * 20_000])
    return mostly((message | mutated).map(text_of), broken)


PROOFS = st.sampled_from(["0" * 64, "0" * 63, "\udc80", "\ud800", "é" * 64]) | TEXTS
HELLO = st.builds(
    lambda task, nonce, proof: text_of({"task": task, "nonce": nonce, "proof": proof}),
    st.sampled_from(["worker-0", "worker-1", "worker-2", "worker-3", "ps-0"]) | TEXTS,
    FIELDS["nonce"],
    PROOFS,
)
ALL = sorted(FIELDS)
STRANGER = st.fixed_dictionaries(
    {
        "proves": st.just(False),
        "lines": st.lists(HELLO | messages(ALL), min_size=LINES, max_size=LINES),
        "end": st.sampled_from(["close", "reset", "open"]),
    }
)
PEER = st.fixed_dictionaries(
    {
        "proves": st.just(True),
        "lines": st.lists(messages([name for name in ALL if name not in ENDS]), min_size=LINES - 1, max_size=LINES - 1),
        "end": st.sampled_from(["close", "reset", "open"]),
    }
)


def sessions(number):
    """This number of messages, and perhaps a last one that ends the wait: the reason of a peer that gives up."""
    connections = number // LINES
    return st.fixed_dictionaries(
        {
            "connections": st.lists(STRANGER | PEER, min_size=connections, max_size=connections),
            "failed": mostly(st.none(), REASONS),
        }
    )


ORDINARY = {"connections": [], "failed": None}


class Launcher:
    """A process that launches one task of a cluster for each session."""

    def __init__(self, task, play):
        self.task, self.play_others = task, play
        self.process, self.sessions, self.ordinary_s = None, 0, 0.0

    def play(self, session, secret):
        if not self.sessions % SESSIONS_OF_A_PROCESS:
            self.restart(secret)
        self.sessions += 1
        try:
            return self._play(session, secret)
        except BaseException:
            self.process.kill()  # it may wait for a message that does not come
            self.sessions = 0
            raise

    def restart(self, secret):
        self.close()
        command = [sys.executable, "-m", "tests.launch.inherit.played_barriers"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._play(ORDINARY, secret)  # it loads what it needs
        result = self._play(ORDINARY, secret)
        self.ordinary_s = result["cpu_s"]
        assert (result["exit_code"], result["errors"]) == (0, []), result

    def close(self):
        if self.process is not None:
            self.process.communicate(timeout=WAIT_S)

    def has_ended(self):
        """Whether the session is over."""
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def _play(self, session, secret):
        cluster = Cluster({"worker": tuple(f"localhost:{port}" for port in free_ports(4))})
        env = {"TF_CONFIG": cluster.tf_config(self.task), "TFDIST_ATTEMPT": "3", "TFDIST_BARRIER_SECRET": secret}
        self.process.stdin.write(to_line(env))
        self.process.stdin.flush()
        self.play_others(session, cluster, Key("3", secret), self.has_ended)
        assert select.select([self.process.stdout], [], [], WAIT_S)[0], "the launcher waits for something"
        return json.loads(self.process.stdout.readline())


def write(connection, lines):
    """Send lines, whose characters are bytes, unless the other side closes the connection."""
    with suppress(ConnectionError):
        for line in lines:
            connection.sendall(line.encode("latin-1", "replace") + b"\n")


def end(connection, how):
    """Close a connection, or reset it."""
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


# --- the others, as the leader sees them


class Connection:
    """A connection to the leader."""

    def __init__(self, port):
        self.socket = socket.create_connection(("localhost", port), timeout=WAIT_S)
        self.lines = self.socket.makefile("rb")
        self.nonce = json.loads(self.lines.readline())["nonce"]

    def hello(self, task, key):
        return text_of({"task": task, "nonce": "n", "proof": key.proof(self.nonce, task)})

    def close(self, how="close"):
        self.lines.close()
        end(self.socket, how)


def introduced(port, task, key):
    """A peer that waits at the leader."""
    peer = Connection(port)
    write(peer.socket, [peer.hello(task, key)])
    assert b"missing" in peer.lines.readline()
    return peer


def play_peers(session, cluster, key, has_ended):
    """Others at the port of the leader; one peer waits all the time, the other two come at the end."""
    port = cluster.port(LEADER)

    def first():
        with suppress(ConnectionError):
            return introduced(port, "worker-2", key)
        return None

    peers = []
    wait_until(lambda: peers.append(first()) or peers[-1] or has_ended())
    peers = peers[-1:]
    with ExitStack() as stack:
        for each in session["connections"]:
            connection = Connection(port)
            write(connection.socket, [connection.hello(HOSTILE, key)] * each["proves"] + each["lines"])
            if each["end"] == "open":
                stack.callback(connection.close)
            else:
                connection.close(each["end"])
        assert not has_ended()
        if session["failed"] is None:
            peers += [introduced(port, task, key) for task in (HOSTILE, "worker-3")]
        else:
            peers.append(introduced(port, HOSTILE, key))
            write(peers[-1].socket, [text_of({"failed": session["failed"], "by": "worker-3"})])
        for peer in peers:
            last = next(message for message in map(json.loads, peer.lines) if "missing" not in message)
            peer.close()
            assert last == ({"go": True} if session["failed"] is None else {"failed": session["failed"], "by": HOSTILE})


# --- the others, as a peer sees them


def play_leaders(session, cluster, key, has_ended):
    """False leaders at the address of the leader, one after another, and then the true one."""
    with serve_reserved(cluster.port(LEADER)) as server:
        server.settimeout(WAIT_S)
        for each in session["connections"]:
            play_leader(server, each["lines"], key if each["proves"] else None, each["end"])
        if session["failed"] is not None:
            play_leader(server, [text_of({"failed": session["failed"], "by": "worker-2"})], key, "close")
            return
        assert not has_ended()
    others = [LEADER, *PEERS[1:]]
    with ThreadPoolExecutor(len(others)) as pool:
        for each in [pool.submit(meet, Rendezvous(cluster, task, key), WAIT_S, lambda _: None) for task in others]:
            each.result()


def play_leader(server, lines, key, how):
    """One connection of the peer; with a key, the leader proves that it has it."""
    connection, _ = server.accept()
    with connection.makefile("rb") as received:
        if key is not None:
            write(connection, [text_of({"nonce": "n"})])
            hello = json.loads(received.readline())
            assert key.proves(hello, "n", HOSTILE)
            lines = [text_of({"proof": key.proof(hello["nonce"], LEADER.name), "missing": "worker-3"}), *lines]
        write(connection, lines)
        with suppress(OSError):  # ENOTCONN: it has closed the connection
            connection.shutdown(socket.SHUT_WR)  # the peer reads all, closes the connection, and comes again
            received.read()
    end(connection, how)


@pytest.fixture(scope="module", params=["leader", "peer"])
def launcher(request):
    task, play = {"leader": (LEADER, play_peers), "peer": (PEERS[0], play_leaders)}[request.param]
    launcher = Launcher(task, play)
    yield launcher
    launcher.close()


def check(launcher, session, secret):
    result = launcher.play(session, secret)
    shown = result["shown"]
    assert result["errors"] == []
    assert result["exit_code"] == (0 if session["failed"] is None else 75), shown
    assert result["outcomes"] == 1
    assert not result["has_controls"], shown
    assert not [line for line in shown.splitlines() if line.startswith(("tfdist: faked", "[worker-0] faked", "faked"))]
    if session["failed"] is not None:
        by = HOSTILE if launcher.task == LEADER else "worker-2"
        assert f"tfdist: {given_up({'failed': session['failed'], 'by': by})}" in shown
    assert result["peak_kib"] < 150_000
    assert (
        result["cpu_s"] - launcher.ordinary_s < 3
    )  # for all messages together: 0.6 s, and twice that beside other load


@pytest.mark.parametrize("secret", ["", "s3cret"])
@settings(SETTINGS, max_examples=5)
@given(session=sessions(20))
def test_no_messages_at_the_barrier_keep_it_closed(launcher, secret, session):
    check(launcher, session, secret)


@pytest.mark.thorough
@pytest.mark.parametrize("secret", ["", "s3cret"])
@settings(SETTINGS, max_examples=63)
@given(session=sessions(40))
def test_ten_thousand_messages_do_not_either(launcher, secret, session):
    check(launcher, session, secret)
