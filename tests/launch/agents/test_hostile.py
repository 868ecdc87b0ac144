"""Hosts whose agents do not answer as ours do."""

import json
import sys
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.launch.jobs import run
from tfdist.launch.agent_program.description import describe
from tfdist.launch.agents.connect import connect
from tfdist.launch.agents.fleet import answers
from tfdist.launch.agents.messages import (
    CheckFolder,
    Dial,
    DialResult,
    DumpStacks,
    FolderChecked,
    FromAgent,
    Inspect,
    Inspected,
    LinkSpeed,
    MeasureLink,
    NotReserved,
    Reserve,
    Reserved,
    StacksDumped,
    encode,
)
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machine
from tfdist.launch.policy import Policy

from .test_messages import FROM_AGENT

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
        {"kind": "reserved", "ports": [0]},
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
        {"gpu_cores": 5},
        {"cuda_missing": 5},
        {"gpu_memory": "x"},
        {"gpu_topology": [[]]},
    ],
)
def test_a_host_with_an_incomplete_description_is_lost(description):
    with (
        pytest.raises(TfdistError, match=r"^h1: .*\(not a message from an agent: hello: \w+: "),
        connect([hostile({}, **description)], Policy()),
    ):
        pytest.fail("connected")


def lines():
    """Lines with the kinds and fields of messages, and any values."""
    names = [field.name for kind in get_args(FromAgent) for field in fields(kind)]
    kinds = st.sampled_from([json.loads(encode(message))["kind"] for message in FROM_AGENT])
    values = st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.just("worker-0") | st.just([[]])
    rest = st.dictionaries(st.sampled_from(names), values | st.dictionaries(st.text(max_size=3), values, max_size=2))
    return st.builds(lambda kind, rest: json.dumps({**rest, "kind": kind}).encode() + b"\n", kinds, rest)


@settings(max_examples=15)
@given(data=st.binary() | st.lists(lines()).map(b"".join))
def test_a_host_that_sends_any_bytes_instead_of_a_hello_is_named(data):
    code = "import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))"
    host = Host("h1", "127.0.0.1", prefix=(sys.executable, "-S", "-c", code, data.hex() or "00"))
    with pytest.raises(TfdistError, match=r"^h1: "), connect([host], Policy(alive_s=5.0)):
        pytest.fail("connected")


DURING_A_TASK = """
import json, sys
sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
def send(kind, **values): print(json.dumps({"kind": kind, **values}), flush=True)
send("alive", time=1.0)
send("hello", description=json.loads(sys.argv[1]))
for line in sys.stdin.buffer:
    message = json.loads(line)
    if message["kind"] == "prepare":
        send("prepared", request=message["request"], requested="/", actual="/")
    elif message["kind"] == "start":
        send("started", task="worker-0", attempt=0, pid=1, time=1.0)
        sys.stdout.buffer.write(bytes.fromhex(sys.argv[2]))
        break
"""


@pytest.mark.slow
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary() | st.lists(lines()).map(b"".join))
@example(data=b'{"kind": "output", "task": "worker-0", "stream": "stacks", "text": "' + b"x" * 1000 + b'"}\n')
@example(data=b'{"kind": "stacks_dumped", "request": 1, "methods": {"worker-9": ""}}\n')
def test_a_host_that_sends_any_bytes_while_its_task_runs_is_named(data, tmp_path):
    prefix = (sys.executable, "-c", DURING_A_TASK, json.dumps(describe()), data.hex())
    host = Host("h1", "127.0.0.1", prefix=prefix)
    machines = {host: Machine((0,), ())}
    job = plan_job(Shape({"worker": RoleShape(1)}, has_cluster=False), Program(("true",), {}, "/"), machines)
    outcome, _ = run(job, tmp_path)
    assert outcome.exit_code == 0 or "h1" in outcome.reason


def test_each_request_has_its_replies():
    assert answers(Reserve((0, 0)), Reserved((5000, 5001)))
    assert answers(Reserve((0,)), NotReserved(5000, "in use"))
    assert answers(Dial((("h", 1),), "", 1.0), DialResult(("",)))
    assert answers(MeasureLink("h", 1, "", 1.0), LinkSpeed(0.1, 1.0, ""))
    assert not answers(Dial((("h", 1),), "", 1.0), DialResult(()))
    assert answers(DumpStacks(("worker-0",)), StacksDumped({}))
    assert answers(CheckFolder("/a", "token", "read"), FolderChecked(""))
    assert not answers(Inspect(()), Reserved(()))
    assert not answers(DumpStacks(()), Inspected({}, {}))
    assert not answers(CheckFolder("/a", "token", "read"), StacksDumped({}))
