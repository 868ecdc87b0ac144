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
        self.skips = False
        """The line that comes is the rest of one that was too long."""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends; of one that is too long, at least `longest` bytes."""
        *ends, start = data.split(b"\n")
        lines = []
        for end in ends:
            if not self.skips:
                lines.append(bytes(self.rest + end))
            self.rest.clear()
            self.skips = False
        if not self.skips:
            self.rest += start
        if len(self.rest) >= self.longest:
            lines.append(bytes(self.rest))
            self.rest.clear()
            self.skips = True
        return lines
