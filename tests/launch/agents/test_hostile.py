"""Hosts whose agents do not answer as ours do."""

import json
import sys

import pytest

from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.messages import (
    Dial,
    DialResult,
    Inspect,
    LinkSpeed,
    MeasureLink,
    NotReserved,
    Reserve,
    Reserved,
)
from tfdist.launch.agents.program.description import describe
from tfdist.launch.agents.requests import answers
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.policy import Policy

AGENT = """
import json, sys
description, reply = json.loads(sys.argv[1]), sys.argv[2]
sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
print(json.dumps({"kind": "alive", "time": 1.0}), flush=True)
print(json.dumps({"kind": "hello", "description": description}), flush=True)
for line in sys.stdin.buffer:
    request = json.loads(line).get("request")
    if request is not None:
        print(json.dumps(json.loads(reply) | {"request": request}), flush=True)
"""


def hostile(reply, **description):
    """A host that describes itself so, and answers each request with this."""
    known = {key: value for key, value in (describe() | description).items() if value is not ...}
    return Host("h1", "127.0.0.1", prefix=(sys.executable, "-c", AGENT, json.dumps(known), json.dumps(reply)))


@pytest.mark.parametrize(
    "reply",
    [
        {"kind": "reserved", "ports": []},
        {"kind": "reserved", "ports": [1, 2]},
        {"kind": "reserved", "ports": [70000]},
        {"kind": "dial_result", "failures": [""]},
    ],
)
def test_a_host_with_an_answer_that_does_not_fit_is_lost(reply):
    with connect([hostile(reply)], Policy()) as fleet:
        assert fleet.ask({host: Reserve((0,)) for host in fleet.hellos}, "reserve ports", 20) == {}
        (problem,) = fleet.lost.values()
        assert "its agent answered Reserve with" in str(problem)


@pytest.mark.parametrize(
    "description",
    [
        {"gpus": ...},
        {"packages": {"tensorflow": 2}},
        {"cores": []},
        {"gpu_ids": ["0"]},
        {"core_limit": "x"},
        {"busy": None},
    ],
)
def test_a_host_with_an_incomplete_description_is_lost(description):
    with (
        pytest.raises(TfdistError, match=r"^h1: .*\(its agent sent an incomplete description\)"),
        connect([hostile({}, **description)], Policy()),
    ):
        pytest.fail("connected")


def test_each_request_has_its_replies():
    assert answers(Reserve((0, 0)), Reserved((5000, 5001)))
    assert answers(Reserve((0,)), NotReserved(5000, "in use"))
    assert answers(Dial((("h", 1),), "", 1.0), DialResult(("",)))
    assert answers(MeasureLink("h", 1, "", 1.0), LinkSpeed(0.1, 1.0, ""))
    assert not answers(Dial((("h", 1),), "", 1.0), DialResult(()))
    assert not answers(Inspect(()), Reserved(()))
