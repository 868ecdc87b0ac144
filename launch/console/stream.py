"""Text streams that never block the caller, however slowly a terminal or pipe is read."""

import io
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TextIO

from tfdist.launch.errors import TfdistError
from tfdist.launch.threads import start_thread

FULL_BYTES = 1 << 20
"""Unwritten bytes of a full stream."""
STALL_S = 0.1
"""A full stream without progress for this long is stalled: it takes nothing more until half of it is written."""
CHUNK_BYTES = 1 << 16
"""Bytes of one write."""
SMALL_CHUNK_BYTES = 1 << 12
"""The same after a write that took longer than `SLOW_S`, since a blocked write shows no progress."""
SLOW_S = 0.1


class WriteQueue:
    """Writes to a file descriptor from its own thread, in order. After an error, all text is discarded.

    If there can be no more threads, the caller writes.
    """

    def __init__(self, descriptor: int) -> None:
        self.pending = 0
        """Bytes that are not written yet."""
        self.error: OSError | None = None
        """The error that ended writing: the reader or the terminal is gone, or the disk is full."""
        self._descriptor = descriptor
        self._queue: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._stalled = False
        self._moved_at = 0.0
        """Monotonic time of the last write, or of the first text after everything was written."""
        self._thread: threading.Thread | None = None

    def has_room(self, stall_s: float = STALL_S) -> bool:
        """Whether the queue is not full. Waits for that while the reader reads, but not for one that does not.

        So a reader of more than about 1 MB/s gets everything.
        """
        with self._changed:
            self._stalled = self._stalled and self.pending > FULL_BYTES // 2
            while self.pending > FULL_BYTES and not self._stalled:
                left_s = self._moved_at + stall_s - time.monotonic()
                self._stalled = left_s <= 0
                self._changed.wait(max(0.0, left_s))
            return not self._stalled

    def put(self, data: bytes) -> None:
        """Add bytes; never blocks. Any amount is taken: ask `has_room` before adding what may be left out."""
        with self._changed:
            if self.error is None:
                if not self.pending:
                    self._moved_at = time.monotonic()
                self._queue.append(data)
                self.pending += len(data)
                self._changed.notify_all()
                if self._thread is None:
                    try:
                        self._thread = start_thread(self._run, "console")
                    except TfdistError:  # it cannot be printed otherwise
                        self._write_queued()

    def wait(self, since: float, patience_s: float) -> None:
        """Wait until everything is written, or until nothing was written for `patience_s` after `since`."""
        with self._changed:
            while self.pending and (left_s := max(since, self._moved_at) + patience_s - time.monotonic()) > 0:
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))

    def _run(self) -> None:
        while self.error is None:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
            self._write_queued()

    def _write_queued(self) -> None:
        with self._changed:
            data = b"".join(self._queue)
            self._queue.clear()
        try:
            self._write(data)
        except OSError as error:
            with self._changed:
                self.error, self.pending = error, 0
                self._queue.clear()
                self._changed.notify_all()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        size = CHUNK_BYTES
        while left:
            started_at = time.monotonic()
            try:
                written = os.write(self._descriptor, left[:size])
            except BlockingIOError:  # another process has made the shared file non-blocking
                select.select([], [self._descriptor], [])
                continue
            left = left[written:]
            now = time.monotonic()
            size = SMALL_CHUNK_BYTES if now - started_at > SLOW_S else CHUNK_BYTES
            with self._changed:
                self.pending -= written
                self._moved_at = now
                self._changed.notify_all()


class _QueueFile(io.RawIOBase):
    def __init__(self, file: TextIO, queue: WriteQueue) -> None:
        self._file, self._queue = file, queue

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | memoryview") -> int:  # type: ignore[override]
        self._queue.put(bytes(data))
        return len(data)

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._file.isatty()


class Stream(io.TextIOWrapper):
    """A text stream whose `write` only adds to a queue."""

    def __init__(self, file: TextIO, queue: WriteQueue) -> None:
        """Write to the file descriptor of `file`, with its encoding. Streams of the same file share a queue."""
        super().__init__(_QueueFile(file, queue), file.encoding, file.errors, write_through=True)  # type: ignore[arg-type]
        self.file, self.queue = file, queue


def streams_of(*files: TextIO) -> list[Stream]:
    """A stream for each file. Those of the same terminal, pipe or file share a queue, which keeps their order.

    Raises:
        OSError: a file has no descriptor (`io.UnsupportedOperation`), or it is closed.
    """
    queues: dict[tuple[int, int], WriteQueue] = {}
    streams = []
    for file in files:
        file.flush()
        status = os.fstat(file.fileno())
        queue = queues.setdefault((status.st_dev, status.st_ino), WriteQueue(file.fileno()))
        streams.append(Stream(file, queue))
    return streams


def wait_until_read(streams: Iterable[Stream], patience_s: float = math.inf) -> None:
    """Wait until everything is written, but no longer than `patience_s` without progress."""
    since = time.monotonic()
    for stream in streams:
        stream.queue.wait(since, patience_s)


def has_room(file: TextIO, stall_s: float = STALL_S) -> bool:
    """Whether `WriteQueue.has_room`; always true for other files."""
    return not isinstance(file, Stream) or file.queue.has_room(stall_s)


def is_behind(file: TextIO) -> bool:
    """Whether the file is a stream with text that is not written yet."""
    return isinstance(file, Stream) and file.queue.pending > 0
