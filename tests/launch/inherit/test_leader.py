import pytest

from tfdist.launch.agent_program.json_lines import LineReader
from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.inherit.leader import LONGEST, MAX_TEXT, Key, Rendezvous, failure, given_up, parse


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\n",
        b"[1]\n",
        b"\xff\n",
        b"{" * (LONGEST + 1),
        b"[" * 100_000 + b"\n",
        b'{"missing": []}\n',
        b'{"task": []}\n',
        b'{"nonce": "%s"}\n' % (b"x" * 65),
        b'{"failed": "%s"}\n' % (b"x" * (MAX_TEXT + 1)),
        b'{"go": "%s"}\n' % (b"x" * LONGEST),
    ],
    ids=["text", "no object", "no UTF-8", "no end", "deep", "a list", "no text", "huge nonce", "huge reason", "long"],
)
def test_anything_else_is_an_error(data):
    with pytest.raises(ValueError, match=r"."):
        list(map(parse, LineReader(LONGEST).feed(data)))


def test_a_proof_holds_for_one_nonce_task_token_and_secret():
    key = Key("3", "s")
    proof = {"proof": key.proof("n", "worker-0")}
    assert key.proves(proof, "n", "worker-0")
    for other, nonce, task in (
        (Key("4", "s"), "n", "worker-0"),
        (Key("3", "t"), "n", "worker-0"),
        (Key("3"), "n", "worker-0"),
        (key, "m", "worker-0"),
        (key, "n", "worker-1"),
    ):
        assert not other.proves(proof, nonce, task)
    assert not key.proves({}, "n", "worker-0")
    for other in (
        "\u00e9",
        "\udc80",
        "\ud800",
        "\udc80" * 64,
        "\u0660" * 64,
        "",
        " " * 64,
        proof["proof"] + "0",
        "x" * 1000,
    ):
        assert not key.proves({"proof": other}, "n", "worker-0")


def test_any_text_can_be_a_nonce():
    assert Key().proof("\udc80\ud800\n", "worker-0") != Key().proof("", "worker-0")


def test_the_reason_of_a_peer_is_one_line_without_escapes():
    message = {"failed": "a\x1b]0;title\x07b\ntfdist: ok\r\u2028\udc80", "by": "worker-1\n[worker-0] done"}
    assert given_up(message) == "ab tfdist: ok\ufffd (says worker-1 [worker-0] done)"


def test_a_long_reason_is_sent_in_part():
    assert len(failure("x" * 10_000, "worker-0")["failed"]) == MAX_TEXT


def test_the_peers_of_a_task_are_all_others_but_evaluators():
    cluster = Cluster({"worker": ("a:1", "b:1", "a:2", "[fd00::1]:1"), "ps": ("a:3",), "evaluator": ("e:1",)})
    rendezvous = Rendezvous(cluster, Task("worker", 1))
    assert rendezvous.peers == {"worker-0": "a:1", "worker-2": "a:2", "worker-3": "[fd00::1]:1", "ps-0": "a:3"}
