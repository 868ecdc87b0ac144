import pytest

from tfdist.launch.agent_program.json_lines import LineReader
from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.inherit.leader import LONGEST, Key, Rendezvous, given_up, parse


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\n",
        b"[1]\n",
        b"\xff\n",
        b"{" * (LONGEST + 1),
        b"[" * 100_000 + b"\n",
        b'{"missing": 5}\n',
        b'{"task": []}\n',
        b'{"go": "%s"}\n' % (b"x" * LONGEST),
    ],
    ids=["text", "no object", "no UTF-8", "no end", "deep", "no list", "no text", "long"],
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
    assert not key.proves({"proof": "\u00e9"}, "n", "worker-0")


def test_the_reason_of_a_peer_has_no_escapes():
    assert given_up({"failed": "a\x1b]0;title\x07b", "by": "worker-1"}) == "ab (says worker-1)"


def test_the_peers_of_a_task_are_all_others_but_evaluators():
    cluster = Cluster({"worker": ("a:1", "b:1", "a:2", "[fd00::1]:1"), "ps": ("a:3",), "evaluator": ("e:1",)})
    rendezvous = Rendezvous(cluster, Task("worker", 1))
    assert rendezvous.peers == {"worker-0": "a:1", "worker-2": "a:2", "worker-3": "[fd00::1]:1", "ps-0": "a:3"}
