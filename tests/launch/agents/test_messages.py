import inspect
import json
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.agent_program import agent
from tfdist.launch.agent_program.description import describe
from tfdist.launch.agents.messages import (
    AgentEnded,
    Alive,
    CheckFolder,
    CloseProbe,
    Configure,
    CopyPart,
    Description,
    Dial,
    DialResult,
    DumpStacks,
    EndAgent,
    Event,
    Exited,
    FindWritten,
    Finish,
    FolderChecked,
    FromAgent,
    Heartbeat,
    Hello,
    Inspect,
    Inspected,
    Leaving,
    LinkSpeed,
    Listening,
    LoggedIn,
    MeasureLink,
    NotReserved,
    NotStarted,
    Output,
    Package,
    Prepare,
    Prepared,
    Release,
    Reserve,
    Reserved,
    StacksDumped,
    Start,
    Started,
    Stop,
    Stuck,
    Terminated,
    ToAgent,
    Written,
    _kind,
    decode,
    encode,
)
from tfdist.launch.typed_json import MAX_DEPTH, from_json

KINDS = {_kind(kind): kind for kind in get_args(FromAgent)}
TEXTS = st.text(st.characters(exclude_categories=())) | st.sampled_from(["stdout", "../../x", "\ud800", "\udcff"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))


@st.composite
def likely_messages(draw):
    """Lines with the names of real kinds and fields, most of them with values of a wrong type."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    names = [field.name for field in fields(KINDS[kind])]
    values = {name: draw(JSON | TEXTS | st.integers()) for name in names if draw(st.integers(0, 9))}
    if draw(st.integers(0, 9)) == 0:
        values[draw(TEXTS)] = draw(JSON)
    return json.dumps({"kind": kind, **values}).encode()


@given(likely_messages())
def test_a_message_is_refused_or_can_be_sent_as_it_was_read(line):
    try:
        message = decode(line)
    except ValueError:
        return
    assert decode(encode(message)) == message


@pytest.mark.parametrize("text", ["[" * 40_000, '{"kind": "event", "event": ' * 5000, '{"kind": []}', "[1]", "null"])
def test_strange_json_is_refused(text):
    with pytest.raises(ValueError, match="not a message from an agent"):
        decode(text.encode())


@pytest.mark.parametrize(("levels", "refused"), [(MAX_DEPTH, False), (MAX_DEPTH + 1, True), (500, True)])
def test_the_depth_of_an_event_is_limited(levels, refused):
    event = '{"a": ' + "[" * levels + "]" * levels + "}"
    line = f'{{"kind": "event", "task": "worker-0", "time": 1, "event": {event}}}'.encode()
    if refused:
        with pytest.raises(ValueError, match="not a message from an agent"):
            decode(line)
    else:
        assert isinstance(decode(line), Event)


def test_only_output_and_events_keep_control_characters():
    text = "\\u001b]0;title\\u0007x"
    assert decode(f'{{"kind": "leaving", "reason": "{text}"}}'.encode()) == Leaving("x")
    hello = decode(json.dumps({"kind": "hello", "description": {**describe(), "gpu_topology": ["\x1b[1mx"]}}).encode())
    assert isinstance(hello, Hello)
    assert hello.description["gpu_topology"] == ("x",)
    event = decode(f'{{"kind": "event", "task": "worker-0", "time": 1.0, "event": {{"a": "{text}"}}}}'.encode())
    assert isinstance(event, Event)
    assert event.event == {"a": "\x1b]0;title\x07x"}


@pytest.mark.parametrize("text", ["x\ntfdist: ok", "x\r\ntfdist: ok", "x\ttfdist: ok", "x\n\x1b[1mtfdist: ok"])
def test_texts_of_hosts_that_the_launcher_prints_are_one_line(text):
    gpu = {**GPU, "gpus": [text], "packages": {text: text}, "host": text}
    hello = decode(json.dumps({"kind": "hello", "description": {**describe(), **gpu}}).encode())
    assert isinstance(hello, Hello)
    one = "x tfdist: ok"
    assert (hello.description["host"], hello.description["gpus"], hello.description["packages"]) == (
        one,
        (one,),
        {one: one},
    )
    assert decode(json.dumps({"kind": "leaving", "reason": text}).encode()) == Leaving(one)
    methods = decode(json.dumps({"kind": "stacks_dumped", "methods": {text: text}}).encode())
    assert methods == StacksDumped({one: one})
    prepared = decode(json.dumps({"kind": "prepared", "requested": "/a\nb", "actual": "/a\nb"}).encode())
    assert prepared == Prepared("/a\nb", "/a\nb")  # tasks run there


GPU = {"gpus": ["A100"], "gpu_ids": ["0"], "gpu_uuids": ["GPU-1"], "gpu_memory": [1], "gpu_cores": [[0]]}
MESSAGES = {
    "hello": {"description": {**describe(), **GPU}},
    "exited": {"task": "t", "code": 1, "time": 1.0, "peak_memory_bytes": 1, "cpu_s": 0.1},
    "started": {"task": "t", "pid": 7, "time": 1.0},
    "stuck": {"task": "t", "time": 1.0, "state": "D", "wait": ""},
    "reserved": {"ports": [5000]},
    "output": {"task": "t", "stream": "stdout", "text": ""},
    "inspected": {"states": {}, "waits": {}, "cpu_s": {}, "host": {}},
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_the_samples_are_messages(kind):
    decode(json.dumps({"kind": kind, **MESSAGES[kind]}).encode())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        *(
            ("hello", {"description": {**describe(), **GPU, **wrong}})
            for wrong in (
                {"gpu_cores": 5},
                {"gpu_cores": [[0], [1]]},
                {"gpu_cores": [[-1]]},
                {"cuda_missing": {}},
                {"cuda_missing": [1]},
                {"gpu_memory": "x"},
                {"gpu_memory": []},
                {"gpu_topology": [["GPU0"]]},
                {"gpu_processes": [["1", "2", "3"]]},
                {"gpu_ids": []},
                {"cores": []},
                {"memory_bytes": -1},
                {"busy": 1e300},
                {"packages": {"keras": "9" * 5000}},
                {"core_limit": []},
            )
        ),
        ("exited", {"code": 1 << 40}),
        ("exited", {"code": -65}),
        ("exited", {"time": -1e308}),
        ("exited", {"cpu_s": -1.0}),
        ("exited", {"attempt": -1}),
        ("started", {"pid": 0}),
        ("started", {"pid": True}),
        ("started", {"time": 1e18}),
        ("stuck", {"state": "x" * 5000}),
        ("reserved", {"ports": [1 << 16]}),
        ("reserved", {"request": 1 << 63}),
        ("output", {"text": "x" * 150_000}),
        ("output", {"stream": "../../x"}),
        ("output", {"stream": ["stdout"]}),
        ("inspected", {"host": {"busy_s": -1.0}}),
    ],
)
def test_a_wrong_field_is_refused_with_its_name(kind, values):
    with pytest.raises(ValueError, match=f"^not a message from an agent: {kind}: ") as error:
        decode(json.dumps({"kind": kind, **MESSAGES[kind], **values}).encode())
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("many", ["[],", "{},", "1,", '"ab",', '{"a":1},', "[[1]],"])
def test_a_message_of_too_many_values_is_refused_before_it_is_parsed(many, monkeypatch):
    event = '{"kind": "event", "task": "t", "time": 1.0, "event": {"a": [%s0]}}'
    separators = sum(map(many.count, ",[{"))
    assert isinstance(decode((event % (many * (49_000 // separators))).encode()), Event)
    monkeypatch.setattr("tfdist.launch.agents.messages.parse_json", None)
    with pytest.raises(ValueError, match="a message of more than 50,000 values"):
        decode((event % (many * (51_000 // separators))).encode())


def test_separators_in_texts_are_not_values():
    text = json.dumps('[{,"\\' * 60_000)
    assert isinstance(decode(f'{{"kind": "event", "task": "t", "time": 1, "event": {{"a": {text}}}}}'.encode()), Event)


@given(st.binary())
def test_output_that_is_not_utf_8_is_unchanged(data):
    text = data.decode("utf-8", "surrogateescape")
    line = json.dumps({"kind": "output", "task": "worker-0", "stream": "stdout", "text": text}).encode()
    message = decode(line)
    assert isinstance(message, Output)
    assert message.text.encode("utf-8", "surrogateescape") == data


@given(st.binary().filter(lambda data: not data.startswith(b'{"kind"')))
def test_other_text_is_refused(line):
    with pytest.raises(ValueError, match="not a message from an agent"):
        decode(line)


TO_AGENT = [
    Configure(5.0, 60.0), Inspect(("worker-0",), True, request=3),
    Reserve((0, 5000), request=2), Start("worker-0", ("a b", "'\";$HOME"), {"K": "v\n"}, "/tmp", (0,), 5000, attempt=1),
    Stop(("worker-0",), 5.0),
    Release(1), Finish(), Heartbeat(1.0), Prepare("/a b", True), CloseProbe(),
    Dial((("::1", 5000), ("h2", 5001)), "token", 4.0), MeasureLink("h2", 5000, "token", 1.0),
    DumpStacks(("worker-0",)), CheckFolder("/a b", "token", "write"), EndAgent("#tfdist-1", 5.0),
    CopyPart("UEs="), Package("UEs="), FindWritten(),
]  # fmt: skip
FROM_AGENT = [
    LoggedIn(), Alive(1.0), Inspected({"worker-0": "S"}, {"worker-0": ""}, request=3), Listening("t", 1.0), Stuck("t", 1.0, "D", "x"),
    Hello(from_json(describe(), Description)), Prepared("/work", "/home"), Reserved((1, 2)), NotReserved(1, "busy"),
    DialResult(("", "refused")), LinkSpeed(0.1, 5.0, ""), Started("t", 7, 1.0), NotStarted("t", "no program"),
    Output("t", "stdout", "text\n"), Event("t", 1.0, {"event": "ready", "steps": [1]}), Exited("t", -9, 1.0, 5, 0.1, 1, attempt=1),
    Heartbeat(1.0), Leaving("killed"), StacksDumped({"worker-0": "/proc"}), FolderChecked("read-only"), AgentEnded("still runs"), Terminated(),
    Written(("a b",), 7),
]  # fmt: skip


def test_the_samples_cover_every_message():
    assert set(map(type, TO_AGENT)) == set(get_args(ToAgent))
    assert set(map(type, FROM_AGENT)) == set(get_args(FromAgent))


def test_a_description_has_what_the_launcher_expects():
    assert describe().keys() == Description.__annotations__.keys()


@pytest.mark.parametrize("message", TO_AGENT)
def test_the_agent_has_a_method_for_every_message_of_the_launcher(message):
    line = encode(message)
    assert line.count(b"\n") == 1
    values = json.loads(line)
    method = getattr(agent.Agent, "_do_" + values.pop("kind"))
    assert {"self", *values} == set(inspect.signature(method).parameters)


@pytest.mark.parametrize("message", FROM_AGENT)
def test_the_launcher_decodes_every_message_of_the_agent(message):
    assert decode(encode(message)) == message


def test_lone_surrogates_of_an_event_become_characters_that_can_be_shown():
    event = {"event": "step", "\udc80": ["\ud800x", "\U0001f600", {"\udbff": 1}]}
    line = json.dumps({"kind": "event", "task": "worker-0", "time": 1.0, "event": event}).encode()
    assert decode(line).event == {"event": "step", "\ufffd": ["\ufffdx", "\U0001f600", {"\ufffd": 1}]}
