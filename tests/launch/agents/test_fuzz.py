"""Any messages of a played host: no listener fails, and the launcher ends without a traceback, in little memory and time."""

import base64
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfdist.launch.agent_program.description import describe
from tfdist.launch.agents.messages import (
    AgentEnded,
    Alive,
    Description,
    DialResult,
    Exited,
    FolderChecked,
    FromAgent,
    Hello,
    Inspected,
    Leaving,
    LinkSpeed,
    NotStarted,
    Prepared,
    Reserved,
    StacksDumped,
    Stuck,
    TaskMessage,
    Written,
    _kind,
)
from tfdist.launch.typed_json import Between, MaxLength

pytestmark = pytest.mark.slow

SESSIONS_OF_A_PROCESS = 20
REPLIES: Mapping[str, type] = {
    "prepare": Prepared, "end_agent": AgentEnded, "reserve": Reserved, "dial": DialResult, "measure_link": LinkSpeed,
    "inspect": Inspected, "dump_stacks": StacksDumped, "check_folder": FolderChecked,
    "find_written": Written,
}  # fmt: skip
ENDS = (Exited, NotStarted, Stuck, Leaving)
EVENTS = [
    "phase", "ready", "step", "checkpoint", "resumed", "evaluation", "failed", "stacks", "barrier", "turn", "record", "x",
    "strategy", "first_batch",
]  # fmt: skip
FIELDS = [
    "phase", "step", "steps", "images_per_s", "loss", "accuracy", "type", "message", "where", "causes", "signal", "pid",
    "step_s", "windows", "observed", "record", "name", "replicas", "trains", "line", "digest", "path", "examples",
]  # fmt: skip
CAUSES = [
    "UnavailableError",
    "RESOURCE_EXHAUSTED: out of memory",
    "Connection refused",
    "NaN",
    "No space left on device",
]
TEXTS = (
    st.text(max_size=20)
    | st.sampled_from(["", "\x1b[2J\x1b]0;x\x07", "\x9b31m", "\u202etxt", "\udc80", "[/red]", "$\\frac{$", "a\n" * 50])
    | st.sampled_from(CAUSES)
    | st.sampled_from("ax- =/:'\"\\").map(lambda character: character * 4096)
)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats() | st.sampled_from([0, 1, -1, 1 << 62, 1e308, -1e308])
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(LEAVES, lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXTS, each, max_size=3))
LARGE = [
    "[" * 49 + "]" * 49,
    json.dumps([[]] * 24_000),
    json.dumps("\x00" * 900_000),
    json.dumps({str(n): n for n in range(9000)}),
]
"""Values of events that are allowed, as JSON."""
BROKEN = ["", "[" * 200_000, "x" * (1 << 20), '{"kind": "x"}', json.dumps({"kind": ["event"]}), "\xff\x00", "[]", "1"]
GPU = ["index", "memory_bytes", "utilization", "power_w", "sm_clock_mhz", "throttle"]
STEP = st.fixed_dictionaries(
    {"event": st.just("step"), "step": st.integers(0, 9) | LEAVES},
    optional={
        "gpus": st.lists(st.dictionaries(st.sampled_from(GPU), LEAVES) | VALUES, max_size=3),
        "own_ms": st.lists(st.floats(0, 1e4) | LEAVES, max_size=3) | LEAVES,
        "step_ms": st.floats(0, 1e4) | LEAVES,
        "every": st.integers(0, 3) | LEAVES,
        "loss": LEAVES,
    },
)
"""Steps as a task sends them, of which some values are odd."""


def framed(header: Any, arrays: bytes) -> dict[str, Any]:
    """The event with a value as `values.send` writes it."""
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "big") + text + arrays
    return {"event": "value", "at": 0, "size": len(data), "data": base64.b64encode(data).decode()}


ARRAY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["<f4", "|u1", "|O", "M8[s/0]", "<U4000000000", "V8", "f4,f4", ""]) | TEXTS,
        "shape": st.lists(st.integers(0, 4) | NUMBERS, max_size=3) | LEAVES,
    }
)
RETURNED = st.builds(
    framed,
    st.fixed_dictionaries(
        {
            "value": VALUES | st.just({"array": 0}) | st.builds(lambda each: {"dict": {"a": each}}, VALUES),
            "arrays": st.lists(ARRAY, max_size=2) | LEAVES,
        }
    ),
    st.binary(max_size=16),
) | st.fixed_dictionaries(
    {"event": st.just("value"), "at": st.integers(-1, 3) | LEAVES, "size": st.integers(-1, 9) | LEAVES, "data": TEXTS}
)
"""What functions return, mostly almost right."""
EVENT = (
    STEP
    | RETURNED
    | st.builds(
        lambda name, values: {**values, "event": name},
        st.sampled_from(EVENTS),
        st.dictionaries(st.sampled_from(FIELDS), VALUES),
    )
)


def of_kind(kind: Any) -> "st.SearchStrategy[Any]":
    """Values that `from_json` reads as this kind, often at their bounds."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return VALUES
    if origin is Annotated and isinstance(arguments[1], Between):
        low, high = arguments[1].low, arguments[1].high
        return st.sampled_from([low, high]) | (st.integers(low, high) if arguments[0] is int else st.floats(low, high))
    if origin is Annotated and isinstance(arguments[1], MaxLength):
        return TEXTS | st.just("\x9b" * arguments[1].characters)
    if origin in (Union, UnionType):
        return st.one_of(*map(of_kind, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(of_kind(arguments[0]), max_size=3)
    if origin is tuple:
        return st.tuples(*map(of_kind, arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(TEXTS | st.just("worker-0"), of_kind(arguments[1]), max_size=3)
    if is_dataclass(kind) or is_typeddict(kind):
        return st.fixed_dictionaries(fields_of(kind))
    return {str: TEXTS, int: NUMBERS, float: NUMBERS, bool: st.booleans(), NoneType: st.none()}[kind]


def fields_of(kind: Any) -> dict[str, "st.SearchStrategy[Any]"]:
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: of_kind(hints[name]) for name in (hints if is_typeddict(kind) else (each.name for each in fields(kind)))
    }


def message_of(kind: Any) -> "st.SearchStrategy[dict[str, Any]]":
    """Messages of this kind, mostly about the task that runs."""
    values = {"kind": st.just(_kind(kind)), **fields_of(kind)}
    if issubclass(kind, TaskMessage):
        values["task"] = st.just("worker-0") | TEXTS if kind not in ENDS else TEXTS
        values["attempt"] = st.just(0) | values["attempt"]
    if "event" in values:
        values["event"] = EVENT
    return st.fixed_dictionaries(values)


def text_of(message: Any) -> str:
    return json.dumps(message).replace(", NaN", ", null").encode("ascii").decode("ascii")


MESSAGE = st.one_of(*(message_of(kind) for kind in get_args(FromAgent) if kind not in (Hello, Leaving))).map(text_of)
"""Of all kinds but those that end a session."""
LARGE_EVENT = st.sampled_from(LARGE).map(
    lambda value: f'{{"kind": "event", "task": "worker-0", "time": 1, "event": {{"event": "x", "loss": {value}}}}}'
)
END = st.one_of(*(message_of(kind) for kind in ENDS)).map(
    lambda message: text_of({**message, "task": "worker-0", "attempt": 0})
)
MUTATED = st.builds(
    lambda message, name, value: text_of({**message, name: value}),
    st.one_of(*map(message_of, get_args(FromAgent))),
    st.sampled_from(sorted({each.name for kind in get_args(FromAgent) for each in fields(kind)})),
    VALUES | st.sampled_from([1 << 63, 10**400, [[]], {}]),
)
"""With one wrong field, perhaps."""
SCALARS = {
    name: strategy
    for name, strategy in fields_of(Description).items()
    if isinstance(describe()[name], str | int | float) and not name.startswith("gpu")  # it has none
}
FOR_EACH_GPU = ["gpus", "gpu_ids", "gpu_uuids", "gpu_memory", "gpu_cores"]


def gpus(number):
    """The fields of a host with this number of GPUs."""
    every = fields_of(Description)
    items = {
        name: of_kind(get_args(get_type_hints(Description, include_extras=True)[name])[0]) for name in FOR_EACH_GPU
    }
    lists = {name: st.lists(item, min_size=number, max_size=number) for name, item in items.items()}
    others = {name: every[name] for name in ("gpu_processes", "gpu_topology", "cuda_missing", "cores_in_use")}
    return st.fixed_dictionaries({**lists, "gpu_devices": st.just(number)}, optional=others)


HELLO = st.builds(
    lambda scalars, gpus: text_of({"kind": "hello", "description": describe() | scalars | gpus}),
    st.fixed_dictionaries({}, optional=SCALARS),
    st.integers(0, 2).flatmap(gpus),
)


def mostly(usual, rare):
    """One of ten is rare."""
    return st.integers(0, 9).flatmap(lambda number: rare if number == 9 else usual)


PREPARED = '{"kind": "prepared", "request": REQUEST, "requested": "/", "actual": "/"}'


def reply_of(kind):
    """REQUEST stands for the number of the request."""
    every = message_of(kind).map(
        lambda reply: text_of({**reply, "request": 0}).replace('"request": 0', '"request": REQUEST')
    )
    return mostly(st.just(PREPARED), every) if kind is Prepared else every


def sessions(messages):
    """Sessions with this number of messages, or a few less, once its task has started. The last one ends it."""
    return st.fixed_dictionaries(
        {
            "first": st.tuples(message_of(Alive).map(text_of), mostly(HELLO, message_of(Hello).map(text_of) | MUTATED)),
            "replies": st.fixed_dictionaries({request: reply_of(kind) for request, kind in REPLIES.items()}),
            "lines": st.builds(
                lambda lines, large, end: [*lines, *large, *end],
                st.lists(MESSAGE, min_size=messages - 4, max_size=messages - 4),
                st.lists(LARGE_EVENT, max_size=2),
                st.tuples(END | MUTATED | st.sampled_from(BROKEN), END),
            ),
        }
    )


ORDINARY = {
    "first": ('{"kind": "alive", "time": 1}', text_of({"kind": "hello", "description": describe()})),
    "replies": {"prepare": PREPARED},
    "lines": (
        '{"kind": "output", "task": "worker-0", "stream": "stdout", "text": "played\\n"}',
        '{"kind": "exited", "task": "worker-0", "code": 0, "time": 1, "peak_memory_bytes": 1, "cpu_s": 1}',
    ),
}


class Launcher:
    """A process that launches a job for each session."""

    def __init__(self, folder):
        self.path, self.process, self.sessions = folder / "session.json", None, 0
        self.ordinary_s = 0.0  # CPU time of an ordinary session

    def play(self, session):
        if not self.sessions % SESSIONS_OF_A_PROCESS:
            self.restart()
        self.sessions += 1
        return self._play(session)

    def restart(self):
        self.close()
        command = [sys.executable, "-m", "tests.launch.agents.played_launches"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._play(ORDINARY)  # it loads what it needs
        result = self._play(ORDINARY)
        self.ordinary_s = result["cpu_s"]
        assert result["exit_code"] == 0
        assert "[worker-0] played" in result["shown"]
        assert result["screens"] > 100
        assert result["errors"] == []

    def close(self):
        if self.process is not None:
            self.process.communicate(timeout=30)

    def _play(self, session):
        self.path.write_text(json.dumps(session), encoding="utf-8")
        self.process.stdin.write(f"{self.path}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def launcher(tmp_path_factory):
    launcher = Launcher(tmp_path_factory.mktemp("it's; new"))
    yield launcher
    launcher.close()


def check(launcher, session):
    result = launcher.play(session)
    assert result["errors"] == []
    assert not result["has_controls"], result["shown"]
    assert result["peak_kib"] < 150_000
    assert result["cpu_s"] - launcher.ordinary_s < 1  # for all messages together


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(sessions(20))
def test_no_messages_of_a_host_end_the_launcher(launcher, session):
    check(launcher, session)


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(4))
@settings(max_examples=63, deadline=None, suppress_health_check=list(HealthCheck))
@given(session=sessions(40))
def test_ten_thousand_messages_do_not_either(launcher, part, session):
    check(launcher, session)
