"""The messages of the start barrier: a JSON object in a line.

The leader sends a `nonce`. A peer answers with its `task`, a `nonce` of its own, and a `proof` that it knows the secret
and the token of the attempt. The leader proves the same, and sends `missing`, the tasks that are not there yet, again
and again, and then `go`; or `refused`, why. Whoever gives up sends `failed`, why, and `by`, its task; the leader passes
that on to all others. Neither secret nor token travels.
"""

import hmac
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from tfdist.launch.redact import safe_text
from tfdist.launch.typed_json import from_json, parse_json

LONGEST = 1 << 20
"""Bytes of a line from the leader: the names of some ten thousand tasks."""
RECEIVE = 1 << 16
SECRET = "TFDIST_SECRET"


class BarrierMessage(TypedDict, total=False):
    """Some of these; the other side may be anybody."""

    nonce: str
    task: str
    proof: str
    has_secret: bool
    refused: str
    missing: tuple[str, ...]
    go: bool
    failed: str
    by: str


@dataclass(frozen=True)
class Key:
    """What the tasks of one attempt have in common."""

    token: str = ""
    """Number of the attempt, which anybody may guess."""
    secret: str = ""
    """Empty: whoever guesses the token belongs to the job."""

    def proof(self, nonce: str, task: str) -> str:
        """A proof by `task` that it has this key, for whoever chose the nonce (HMAC-SHA256, RFC 2104)."""
        text = json.dumps([nonce, task, self.token])
        return hmac.new(os.fsencode(self.secret), text.encode(), "sha256").hexdigest()

    def proves(self, message: BarrierMessage, nonce: str, task: str) -> bool:
        """Whether a message has the proof."""
        return hmac.compare_digest(message.get("proof", "").encode(), self.proof(nonce, task).encode())


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message.

    Raises:
        OSError: the connection is lost, or the other side does not read.
    """
    connection.sendall(json.dumps(message).encode() + b"\n")


class Lines:
    """The bytes of a connection as messages."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._rest, self._longest = b"", longest

    def feed(self, data: bytes) -> list[BarrierMessage]:
        """The messages that are complete with `data`.

        Raises:
            ValueError: the other side sends something else.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if any(len(line) > self._longest for line in (self._rest, *lines)):
            raise ValueError("not a message of the start barrier")
        return [from_json(parse_json(line), BarrierMessage) for line in lines]


def given_up(message: BarrierMessage) -> str:
    """The sentence of a `failed` message."""
    return safe_text(f"{message.get('failed')} (says {message.get('by')})")
