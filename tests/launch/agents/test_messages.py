import ast
import inspect
import json
from dataclasses import fields
from typing import get_args

import pytest

from tfdist.launch.agent_program import agent
from tfdist.launch.agent_program.description import describe
from tfdist.launch.agents.bootstrap import program_text
from tfdist.launch.agents.messages import (
    AgentEnded,
    Alive,
    CheckFolder,
    CloseProbe,
    Configure,
    Description,
    Dial,
    DialResult,
    DumpStacks,
    EndAgent,
    Event,
    Exited,
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
)
from tfdist.launch.agents.wire import decode, encode
from tfdist.launch.typed_json import from_json

TO_AGENT = [
    Configure(5.0, 60.0), Inspect(("worker-0",), True, request=3),
    Reserve((0, 5000), request=2), Start("worker-0", ("a b", "'\";$HOME"), {"K": "v\n"}, "/tmp", (0,), 5000, attempt=1),
    Stop(("worker-0",), 5.0),
    Release(1), Finish(), Heartbeat(1.0), Prepare("UEs=", "/a b", True), CloseProbe(),
    Dial((("::1", 5000), ("h2", 5001)), "token", 4.0), MeasureLink("h2", 5000, "token", 1.0),
    DumpStacks(("worker-0",)), CheckFolder("/a b", "token", "write"), EndAgent("#tfdist-1", 5.0),
]  # fmt: skip
FROM_AGENT = [
    LoggedIn(), Alive(1.0), Inspected({"worker-0": "S"}, {"worker-0": ""}, request=3), Listening("t", 1.0), Stuck("t", 1.0, "D", "x"),
    Hello(from_json(describe(), Description)), Prepared("/work", "/home"), Reserved((1, 2)), NotReserved(1, "busy"),
    DialResult(("", "refused")), LinkSpeed(0.1, 5.0, ""), Started("t", 7, 1.0), NotStarted("t", "no program"),
    Output("t", "stdout", "text\n"), Event("t", 1.0, {"event": "ready", "steps": [1]}), Exited("t", -9, 1.0, 5, 0.1, 1, "", attempt=1),
    Heartbeat(1.0), Leaving("killed"), StacksDumped({"worker-0": "/proc"}), FolderChecked("read-only"), AgentEnded("still runs"), Terminated(),
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


def test_the_agent_sends_the_fields_that_the_launcher_expects():
    calls = [node for node in ast.walk(ast.parse(program_text())) if isinstance(node, ast.Call)]
    sent = {
        call.args[0].value: {keyword.arg for keyword in call.keywords}
        for call in calls
        if getattr(call.func, "attr", "") == "_send" and isinstance(call.args[0], ast.Constant)
        if None not in {keyword.arg for keyword in call.keywords}
    }
    kinds = {json.loads(encode(message))["kind"]: message for message in FROM_AGENT}
    assert sent == {kind: {field.name for field in fields(kinds[kind])} for kind in sent}
    assert kinds.keys() - sent.keys() == {
        "agent_ended",
        "dial_result",
        "folder_checked",
        "hello",
        "inspected",
        "link_speed",
        "logged_in",
        "prepared",
        "stacks_dumped",
    }  # sent from threads, as dictionaries; the login by a shell


def test_no_two_files_of_the_agent_define_the_same_name():
    names = [
        name
        for node in ast.parse(program_text()).body
        for name in ([node.name] if hasattr(node, "name") else map(ast.unparse, getattr(node, "targets", [])))
    ]
    assert sorted(names) == sorted(set(names))


def test_the_agents_text_imports_nothing_of_tfdist_at_its_top():
    imports = [node for node in ast.parse(program_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {getattr(node, "module", None) or node.names[0].name for node in imports}
    assert not any(module.startswith("tfdist") for module in modules)
    assert {"json", "selectors"} <= modules
