import inspect
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.agents import agent, messages
from tfdist.launch.agents.messages import (
    Dial,
    Dialled,
    Event,
    Exited,
    Finish,
    Heartbeat,
    Hello,
    Hush,
    Measure,
    Measured,
    Output,
    Prepare,
    Prepared,
    Release,
    Reserve,
    Reserved,
    Start,
    Stop,
    decode,
    encode,
)

TO_AGENT = [
    Reserve((0, 5000)), Start("worker-0", ("a b", "'\";$HOME"), {"K": "v\n"}, "/tmp", (0,)), Stop(("worker-0",), 5.0),
    Release(), Finish(), Heartbeat(), Prepare("UEs=", "/a b", True), Reserve((0,), "token"), Hush(),
    Dial((("::1", 5000), ("h2", 5001)), "token", 4.0), Measure("h2", 5000, "token", 1.0),
]  # fmt: skip


@pytest.mark.parametrize("message", TO_AGENT)
def test_what_the_launcher_says_is_one_line_that_the_agent_has_a_method_for(message):
    line = encode(message)
    assert line.count(b"\n") == 1
    values = json.loads(line)
    method = getattr(agent.Agent, "do_" + values.pop("kind"))
    assert ["self", *values] == list(inspect.signature(method).parameters)


@given(st.binary())
def test_bytes_of_any_kind_survive_the_way_to_the_log(data):
    text = data.decode("utf-8", "surrogateescape")
    line = json.dumps({"kind": "output", "task": "worker-0", "stream": "stdout", "text": text}).encode()
    message = decode(line)
    assert isinstance(message, Output)
    assert message.text.encode("utf-8", "surrogateescape") == data


def test_what_the_agent_says():
    assert decode(b'{"kind": "hello", "host": "h"}') == Hello({"host": "h"})
    assert decode(b'{"kind": "reserved", "ports": [1, 2]}') == Reserved((1, 2))
    assert decode(b'{"kind": "heartbeat"}') == Heartbeat()
    assert decode(b'{"kind": "prepared", "cwd": "/home", "as_asked": false}') == Prepared("/home", False)
    assert decode(b'{"kind": "dialled", "failures": ["", "refused"]}') == Dialled(("", "refused"))
    assert decode(b'{"kind": "measured", "rtt_s": 0.1, "bytes_per_s": 5.0, "reason": ""}') == Measured(0.1, 5.0, "")
    assert isinstance(decode(b'{"kind": "event", "task": "t", "time": 1.0, "event": {"event": "ready"}}'), Event)
    line = b'{"kind": "exited", "task": "t", "code": -9, "time": 1.0, "peak_memory_bytes": 5, "cpu_s": 0.1}'
    assert isinstance(decode(line), Exited)


@given(st.binary().filter(lambda data: not data.startswith(b'{"kind"')))
def test_anything_else_is_refused_with_what_it_was(line):
    with pytest.raises(ValueError, match="not a message of an agent"):
        decode(line)


def test_every_kind_is_said_by_one_side():
    assert set(messages._KINDS) == {
        "reserve", "start", "stop", "release", "finish", "heartbeat", "reserved", "refused", "started", "not_started",
        "output", "event", "exited", "leaving", "prepare", "prepared", "unprepared", "dial", "dialled", "measure",
        "measured", "hush",
    }  # fmt: skip
