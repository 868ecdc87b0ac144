import io
import os
import pty
import threading
import time

import pytest

from tfdist.launch.console.stream import FULL_BYTES, has_room, is_behind, streams_of, wait_until_read


def test_writing_to_an_unread_pipe_returns_and_keeps_the_order(unread):
    for number in range(20_000):
        unread.stream.write(f"{number} {'x' * 90}\n")
    assert is_behind(unread.stream)
    assert not has_room(unread.stream)
    assert [int(line.split()[0]) for line in unread.rest().splitlines()] == list(range(20_000))
    assert has_room(unread.stream)


def test_a_stalled_stream_has_no_room_until_half_is_written(unread):
    unread.stream.write("x" * (2 * FULL_BYTES))
    assert not has_room(unread.stream)
    unread.read(FULL_BYTES)
    assert not has_room(unread.stream)
    unread.read(FULL_BYTES // 2)
    unread.wait_until_not_full()
    assert unread.stream.queue.pending <= FULL_BYTES // 2
    unread.rest()


def test_waiting_ends_without_progress(unread):
    unread.stream.write("x" * FULL_BYTES)
    start = time.monotonic()
    wait_until_read([unread.stream, unread.stream], 0.3)
    assert 0.3 <= time.monotonic() - start < 20
    assert unread.stream.queue.pending
    unread.rest()


@pytest.mark.slow
def test_a_slow_reader_gets_everything(unread):
    text = "x" * (1 << 17)
    unread.stream.write(text)

    def read_slowly():
        while len(unread.so_far) < len(text):
            unread.read(1 << 13)
            time.sleep(0.1)

    reader = threading.Thread(target=read_slowly)
    reader.start()
    wait_until_read([unread.stream], 1.0)  # all takes longer than that, each step does not
    assert not unread.stream.queue.pending
    reader.join()
    assert len(unread.rest()) == len(text)


@pytest.mark.parametrize("gone", ["disk", "pipe", "terminal"])
def test_a_write_error_ends_the_stream_without_an_exception(gone):
    reading, writing = pty.openpty() if gone == "terminal" else os.pipe()
    os.close(reading)
    if gone == "disk":
        writing = os.open("/dev/full", os.O_WRONLY)
    with open(writing, "w", closefd=False) as file:
        (stream,) = streams_of(file)
        stream.write("x\n")
        wait_until_read([stream])
        stream.write("y\n")
        assert stream.queue.error is not None
        assert not stream.queue.pending
    os.close(writing)


def test_streams_of_one_file_share_a_queue_and_others_do_not(tmp_path):
    with (tmp_path / "a").open("w") as one, (tmp_path / "b").open("w") as other:
        with os.fdopen(os.dup(one.fileno()), "w") as same:
            first, second, third = streams_of(one, same, other)
            first.write("1\n")
            second.write("2\n")
            first.write("3\n")
            wait_until_read([first, second, third])
        assert first.queue is second.queue is not third.queue
    assert (tmp_path / "a").read_text() == "1\n2\n3\n"


def test_a_non_blocking_file_is_waited_for(unread):
    os.set_blocking(unread.stream.fileno(), False)
    unread.stream.write("x" * (1 << 18))
    assert len(unread.rest()) == 1 << 18


def test_a_stream_resembles_its_file():
    master, slave = pty.openpty()
    with os.fdopen(slave, "w", encoding="ascii", errors="backslashreplace") as file:
        (stream,) = streams_of(file)
        assert (stream.encoding, stream.errors) == ("ascii", "backslashreplace")
        assert (stream.isatty(), stream.fileno()) == (True, slave)
        stream.write("caf\u00e9\n")
        assert os.read(master, 100) == b"caf\\xe9\r\n"
    os.close(master)


def test_files_without_a_descriptor_are_refused_and_have_room():
    with pytest.raises(io.UnsupportedOperation):
        streams_of(io.StringIO())
    assert has_room(io.StringIO())


def test_a_full_stream_waits_for_a_reader_that_reads(unread):
    reader = threading.Thread(target=unread.read, args=(50 * FULL_BYTES,), daemon=True)
    reader.start()
    for _ in range(50):
        unread.stream.write("x" * FULL_BYTES)
        assert has_room(unread.stream, 10.0)
    reader.join()
