"""Messages as lines of JSON. What an agent sends is checked field by field: its host may be compromised."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import get_args

from tfdist.launch.agent_program.text import MAX_VALUES, too_many_values
from tfdist.launch.agents.messages import Event, FromAgent, Output, ToAgent
from tfdist.launch.text import plain
from tfdist.launch.typed_json import from_json, parse_json, with_texts

ENVELOPE = 100
"""Values of a message besides those of its event."""
MAX_OTHER = 1 << 20
"""Bytes of a message that is neither output nor an event."""


def _kind(message_class: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message_class.__name__).lower()


_FROM_AGENT: Mapping[str, type] = {_kind(message_class): message_class for message_class in get_args(FromAgent)}


def encode(message: ToAgent) -> bytes:
    """The message as one line."""
    return json.dumps({"kind": _kind(type(message)), **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> FromAgent:
    """The message in a line from an agent. Its fields are as annotated; JSON lists become tuples.

    Only the output and events of tasks may hold control characters; the launcher prints what is in the other messages.

    Raises:
        ValueError: not a message, for example the output of a login script.
    """
    if too_many_values(line, MAX_VALUES + ENVELOPE):
        raise ValueError(f"a message of more than {MAX_VALUES:,} values from the agent")
    try:
        values = parse_json(line.decode("ascii"))  # an agent escapes all else
        message_class = _FROM_AGENT[values["kind"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a message from an agent: {line[:200]!r}") from error
    try:
        if message_class not in (Output, Event):
            if len(line) > MAX_OTHER:
                raise ValueError(f"it has more than {MAX_OTHER >> 20} MiB")
            values = with_texts(values, plain)
        message: FromAgent = from_json(values, message_class)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a message from an agent: {values['kind']}: {error}") from error
    return message
