"""Messages on a stream: a JSON object in each line. The sender may be anybody, so a reader bounds what it keeps."""

import json
import math
from typing import Any


def to_line(message: Any) -> bytes:
    """The message as one line."""
    return json.dumps(message).encode() + b"\n"


class LineReader:
    """The bytes of a stream as lines."""

    def __init__(self, longest: float = math.inf) -> None:
        """Keep less than `longest` bytes of a line whose end is missing."""
        self.longest = longest
        self.rest = bytearray()
        """The start of a line whose end is missing."""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends; one that is too long in pieces of at least `longest`."""
        *ends, start = data.split(b"\n")
        lines = []
        for end in ends:
            lines.append(bytes(self.rest + end))
            self.rest.clear()
        self.rest += start
        if len(self.rest) >= self.longest:
            lines.append(bytes(self.rest))
            self.rest.clear()
        return lines
