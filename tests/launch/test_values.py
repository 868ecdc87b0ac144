"""What a function returns crosses the network without code."""

import base64
import json
import pickle
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch import values
from tfdist.launch.agent_program.json_lines import to_line
from tfdist.launch.agent_program.running_task import MAX_EVENT
from tfdist.launch.agent_program.text import why_refused
from tfdist.launch.agents.inbox import Restarting
from tfdist.launch.agents.messages import Event
from tfdist.launch.events import VALUE
from tfdist.launch.values import ReturnedValues, decode, encode

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3), max_leaves=20
)


@given(VALUES)
def test_any_json_comes_back_as_it_was(value: Any) -> None:
    assert decode(encode(value)) == value


def test_a_dictionary_that_looks_like_an_array_stays_one() -> None:
    for value in ({"array": 0}, {"dict": {}}, [{"dict": {"array": 1}}]):
        assert decode(encode(value)) == value


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "complex128", "S3", "U2", ">f8"])
def test_arrays_keep_type_shape_and_bytes(dtype: str) -> None:
    array = np.zeros((2, 0, 3) if dtype == "int8" else (2, 3), dtype)
    array.flat[-1:] = 1
    found = decode(encode({"a": array.T, "b": [array, np.array(5, dtype)]}))
    for one, other in ((found["a"], array.T), (found["b"][0], array), (found["b"][1], np.array(5, dtype))):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.flags.writeable
        np.testing.assert_array_equal(one, other)


def test_tuples_become_lists_and_numpy_numbers_python_ones() -> None:
    found = decode(encode((np.float32(1.5), np.int64(2), np.bool_(True), float("inf"))))
    assert found == [1.5, 2, True, float("inf")]
    assert [type(each) for each in found] == [float, int, bool, float]


class Model:
    """As a Keras model is recognized."""


Model.__module__ = "tf_keras.src.engine.training"


class Tensor:
    def numpy(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"model": type("Sequential", (Model,), {})()},
            "values['model'] is a Keras model: save it to TFDIST_CHECKPOINT_DIR",
        ),
        ([1, Tensor()], r"values[1] is a tests.launch.test_values.Tensor: return its .numpy(), or float() of it"),
        (
            {"a": {"b": object()}},
            "values['a']['b'] is an object: return numbers, texts, lists, dictionaries and",
        ),
        (np.array([object()]), "values is a numpy.ndarray: return numbers, texts, lists"),
        (np.ma.array([1.0], mask=[True]), "values is a numpy.ma.MaskedArray: return numbers, texts"),
        (np.array(["2026-01-01"], "M8[D]"), "values is a numpy.ndarray: return numbers, texts, lists"),
        ({1: 2}, "values has the key 1: make it a text"),
        (b"bytes", "values is a bytes: "),
        ({2}, "values is a set: "),
    ],
)
def test_anything_else_is_refused_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(TypeError) as error:
        encode(value)
    assert str(error.value).startswith(message)


def test_what_json_cannot_hold_is_refused_before_it_is_sent() -> None:
    itself: list[Any] = []
    itself.append(itself)
    for value, message in (
        (2**63, "an integer in it needs more than 64 bits"),
        ("\ud800", "a text in it is not Unicode"),
        (itself, "holds itself"),
    ):
        with pytest.raises(TypeError, match=message):
            encode(value)


def test_long_lists_are_to_be_arrays() -> None:
    with pytest.raises(ValueError, match=r"^values: it has more than 1,000,000 values besides arrays: return lists"):
        encode([0] * 1_000_001)


def test_too_large_a_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"^values has 0 MB: write it to TFDIST_ARM_DIR"):
        encode("x" * 1000)


def framed(header: Any, rest: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "big") + text + rest


@pytest.mark.parametrize(
    "data",
    [
        b"",
        pickle.dumps({"loss": 1.0}),
        framed([]),
        framed({"value": {"array": 0}, "arrays": []}),
        framed({"value": {"pickle": "x"}, "arrays": []}),
        framed({"value": 1, "arrays": [{"dtype": "O", "shape": [1]}]}, bytes(8)),
        framed({"value": 1, "arrays": [{"dtype": "no", "shape": [1]}]}, bytes(8)),
        framed({"value": 1, "arrays": [{"dtype": "<f8", "shape": [1 << 40, 1 << 40]}]}, bytes(8)),
        framed({"value": 1, "arrays": [{"dtype": "<f8", "shape": [-1]}]}, bytes(8)),
        framed({"value": 1, "arrays": [{"dtype": "V8", "shape": [1]}]}, bytes(8)),
        framed({"value": 1, "arrays": [{"dtype": "M8[s/0]", "shape": [1]}]}, bytes(8)),  # numpy ends the process for it
        framed({"value": 1, "arrays": [{"dtype": "<U4000000000", "shape": [0]}]}),
        framed({"value": 1, "arrays": [{"dtype": "|u1", "shape": [1 << 60] * 20_000}]}),
        framed({"value": [[]] * 1_000_001, "arrays": []}),
        framed({"value": 1, "arrays": [{"dtype": "|u1", "shape": []}] * 400_000}, bytes(400_000)),
        framed({"value": 1, "arrays": []}, b"more"),
        (1 << 60).to_bytes(8, "big") + b"{}",
        framed("x")[:-1] + b"[" * 200_000,
    ],
)
def test_bytes_of_a_hostile_host_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    with suppress(ValueError):
        decode(data)


def part(data: bytes, at: int = 0, size: int | None = None, task: str = "worker-0") -> Event:
    text = base64.b64encode(data).decode()
    event = {"event": VALUE, "at": at, "size": len(data) if size is None else size, "data": text}
    return Event(task, 0.0, event)


def sent(value: Any, task: str = "worker-0", size: int = 7) -> Iterator[Event]:
    data = encode(value)
    for at in range(0, len(data), size):
        yield part(data[at : at + size], at, len(data), task)


def test_values_come_in_parts_and_a_later_attempt_replaces_them() -> None:
    received = ReturnedValues()
    array = np.arange(100)
    for message in (
        *sent({"a": array}),
        *sent(1, "worker-1"),
        *list(sent("first", "worker-2"))[:-1],
        *sent(2, "worker-1"),
    ):
        received.note(message)
    values = received.values()
    np.testing.assert_array_equal(values["worker-0"]["a"], array)
    assert values["worker-1"] == 2
    assert "worker-2" not in values  # it ended while it sent
    assert received.problems == {}
    received.note(Restarting(1, ("worker-0",), whole=False, reason=""))
    assert set(received.values()) == {"worker-1"}


@pytest.mark.parametrize(
    "messages",
    [
        [part(pickle.dumps({"loss": 1.0}))],
        [part(b"", size=1)],
        [part(b"1", at=5)],
        [part(b"1", at=0, size=9), part(b"1", at=0, size=3), part(b"23", at=1, size=9)],
        [part(b"123", size=2)],
        [part(b"1", size=values.MOST_BYTES + 1)],
        [Event("worker-0", 0.0, {"event": VALUE, "at": 0, "size": 1, "data": "not base64"})],
    ],
)
def test_what_a_hostile_host_sends_is_a_problem_and_no_value(messages: list[Event]) -> None:
    received = ReturnedValues()
    for message in messages:
        received.note(message)
    assert received.values() == {}
    assert list(received.problems) == ["worker-0"]


def test_all_tasks_together_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_BYTES_OF_JOB", 100)
    received = ReturnedValues()
    for task in ("worker-0", "worker-1"):
        received.note(part(encode("x" * 20), task=task))
    assert set(received.values()) == {"worker-0"}
    assert "the values of all tasks have more than" in received.problems["worker-1"]


@given(st.lists(st.tuples(st.integers(-2, 20), st.integers(-2, 20), st.binary(max_size=20)), max_size=4))
def test_any_parts_are_values_or_problems(parts: list[tuple[int, int, bytes]]) -> None:
    received = ReturnedValues()
    for at, size, data in parts:
        received.note(part(data, at, size))
    assert set(received.values()) <= {"worker-0"}


def test_a_value_is_sent_in_events_that_the_agent_passes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(values.events, "emit", lambda event, **values: lines.append({"event": event, **values}))
    values.send("x" * 1_000_000)
    assert len(lines) == 3
    assert all(len(to_line(line)) < MAX_EVENT and not why_refused(line, 9) for line in lines)
    received = ReturnedValues()
    for line in lines:
        received.note(Event("worker-0", 0.0, line))
    assert received.values() == {"worker-0": "x" * 1_000_000}
