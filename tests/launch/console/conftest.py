"""A stream into a pipe that is read only when the test wants it."""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tfdist.launch.console.stream import Stream, streams_of


@dataclass
class Unread:
    """A pipe and the stream that writes to it."""

    stream: Stream
    descriptor: int
    so_far: bytearray = field(default_factory=bytearray)

    def read(self, size: int) -> None:
        """Read `size` bytes."""
        while size:
            data = os.read(self.descriptor, size)
            assert data
            self.so_far += data
            size -= len(data)

    def wait_until_not_full(self) -> None:
        """Read until the stream takes text again."""
        while not self.stream.queue.has_room():
            self.read(1)

    def rest(self) -> bytes:
        """Everything that was written, once all is read."""
        reader = threading.Thread(target=self._read_all)
        reader.start()
        self.stream.queue.wait(0.0, 1e9)
        os.close(self.stream.fileno())
        reader.join()
        return bytes(self.so_far)

    def _read_all(self) -> None:
        while data := os.read(self.descriptor, 1 << 16):
            self.so_far += data


@pytest.fixture
def unread() -> Iterator[Unread]:
    """A stream that nobody reads."""
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0), open(writing, "w", closefd=False) as file:  # noqa: PTH123
        (stream,) = streams_of(file)
        yield Unread(stream, reading)
