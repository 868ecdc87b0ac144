import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfdist.launch.agents.messages import Event, FromAgent, Hello, Leaving, Output
from tfdist.launch.agents.wire import MAX_DEPTH, decode

KINDS = {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in get_args(FromAgent)}
TEXTS = st.text(st.characters(exclude_categories=())) | st.sampled_from(["stdout", "../../x", "\ud800", "\udcff"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
IS_OF_TYPE = {
    str: lambda value: type(value) is str,
    int: lambda value: type(value) is int,
    float: lambda value: type(value) is float and math.isfinite(value),
    tuple[int, ...]: lambda value: type(value) is tuple and all(type(item) is int for item in value),
    tuple[str, ...]: lambda value: type(value) is tuple and all(type(item) is str for item in value),
    Mapping[str, str]: lambda value: type(value) is dict and all(type(item) is str for item in value.values()),
    Mapping[str, int]: lambda value: type(value) is dict and all(type(item) is int for item in value.values()),
    Mapping[str, float]: lambda value: (
        type(value) is dict and all(type(item) is float and math.isfinite(item) for item in value.values())
    ),
    Mapping[str, Any]: lambda value: type(value) is dict,
    get_type_hints(Output)["stream"]: lambda value: value in ("stdout", "stderr"),
}
"""By annotation."""


@st.composite
def likely_messages(draw):
    """Lines with the names of real kinds and fields, most of them with values of a wrong type."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    names = [field.name for field in fields(KINDS[kind])]
    values = {name: draw(JSON | TEXTS | st.integers()) for name in names if draw(st.integers(0, 9))}
    if draw(st.integers(0, 9)) == 0:
        values[draw(TEXTS)] = draw(JSON)
    return json.dumps({"kind": kind, **values}).encode()


def texts_in(value):
    """All strings in a JSON value."""
    if isinstance(value, str):
        return [value]
    items = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return [text for item in items for text in texts_in(item)]


@given(likely_messages())
@example(b'{"kind": "output", "task": "../../x", "stream": "../../x", "text": ""}')
@example(b'{"kind": "output", "task": "worker-0", "stream": ["stdout"], "text": ""}')
@example(b'{"kind": "started", "task": "worker-0", "pid": true, "time": 1.0}')
@example(b'{"kind": "started", "task": "worker-0", "pid": 7, "time": NaN}')
@example(b'{"kind": "heartbeat", "time": 1' + b"0" * 400 + b"}")
def test_a_message_is_refused_or_has_fields_of_the_annotated_types(line):
    try:
        message = decode(line)
    except ValueError:
        return
    for name, kind in get_type_hints(type(message)).items():
        value = getattr(message, name)
        assert IS_OF_TYPE[kind](value), (name, value)
        assert "".join(texts_in(value)).encode("utf-8", "surrogateescape") is not None


def test_the_types_of_all_fields_are_tested():
    assert {kind for message in KINDS.values() for kind in get_type_hints(message).values()} == set(IS_OF_TYPE)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"kind": "event", "event": ' * 5000, '{"kind": []}', "[1]", "null"])
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
    assert decode(f'{{"kind": "hello", "description": {{"{text}": ["{text}", 1]}}}}'.encode()) == Hello({"x": ["x", 1]})
    event = decode(f'{{"kind": "event", "task": "worker-0", "time": 1.0, "event": {{"a": "{text}"}}}}'.encode())
    assert isinstance(event, Event)
    assert event.event == {"a": "\x1b]0;title\x07x"}


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
