"""The messages of the start barrier: a JSON object in a line.

A peer starts with its task and token. The leader answers with `missing`, the tasks that are not there yet, again and
again, and then with `go`; or with `refused`, the token of its own attempt. Whoever gives up sends `failed`, why, and
`by`, its task; the leader passes that on to all others.
"""

import json
import socket
from collections.abc import Mapping
from typing import Any

LONGEST = 1 << 20
"""Bytes of a line: the names of some ten thousand tasks."""
RECEIVE = 1 << 16


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message.

    Raises:
        OSError: the connection is lost, or the other side does not read.
    """
    connection.sendall(json.dumps(message).encode() + b"\n")


class Lines:
    """The bytes of a connection as messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Mapping[str, Any]]:
        """The messages that are complete with `data`.

        Raises:
            ValueError: the other side sends something else.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except RecursionError:
            raise ValueError("not a message of the start barrier") from None
        if len(self._rest) > LONGEST or not all(isinstance(message, dict) for message in messages):
            raise ValueError("not a message of the start barrier")
        return messages


def given_up(message: Mapping[str, Any]) -> str:
    """The sentence of a `failed` message."""
    return f"{message.get('failed')} (says {message.get('by')})"
