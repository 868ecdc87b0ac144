"""One thread for the pipes of all agents."""

import os
import threading

import psutil
import pytest

from tests.waiting import wait_until
from tfdist.launch.agents.streams import Streams
from tfdist.launch.errors import TfdistError


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    yield reader, writer
    for descriptor in (reader, writer):
        os.close(descriptor)


def test_functions_are_called_while_their_descriptors_are_ready_and_until_they_are_forgotten(pipe):
    reader, writer = pipe
    streams, read = Streams(), []

    def keep():
        read.append((os.read(reader, 1), threading.current_thread()))
        if len(read) == 3:
            streams.forget(reader)

    streams.call(keep, reader)
    os.write(writer, b"abcd")
    wait_until(lambda: len(read) == 3)
    with streams.lock:  # it calls nothing now
        assert b"".join(data for data, _ in read) == b"abc"
    assert os.read(reader, 10) == b"d"
    assert len({thread for _, thread in read} - {threading.current_thread()}) == 1


def test_a_function_is_called_when_a_full_pipe_can_be_written_again(pipe):
    reader, writer = pipe
    streams, called = Streams(), threading.Event()
    os.write(writer, bytes(1 << 24))  # as much as it holds
    streams.call(lambda: (streams.forget(writer), called.set()), writer, writable=True)
    assert not called.is_set()
    while not called.is_set():
        try:
            os.read(reader, 1 << 16)
        except BlockingIOError:
            break
    assert called.wait(30)


def test_one_thread_serves_all(pipe):
    streams, before = Streams(), threading.active_count()
    pipes = [os.pipe() for _ in range(20)]
    for reader, _ in pipes:
        streams.call(lambda: None, reader)
    assert threading.active_count() == before + 1
    for reader, writer in pipes:
        streams.forget(reader)
        os.close(reader)
        os.close(writer)


def test_without_a_thread_nothing_stays_open(monkeypatch, pipe):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    opened = psutil.Process().num_fds()
    with pytest.raises(TfdistError, match="no more processes or threads"):
        Streams().call(lambda: None, pipe[0])
    assert psutil.Process().num_fds() == opened


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_a_forked_process_gets_a_thread_of_its_own(busy, pipe):
    """Also if the thread of its parent is in a function, and holds the lock."""
    reader, writer = pipe
    streams, called, go = Streams(), threading.Event(), threading.Event()
    streams.call(lambda: (streams.forget(reader), called.set(), go.wait(60)), reader)
    if busy:
        os.write(writer, b"x")
        assert called.wait(30)
    child = os.fork()
    if not child:
        again = threading.Event()
        streams.call(lambda: (streams.forget(reader), again.set()), reader)
        os.write(writer, b"x")
        os._exit(0 if again.wait(30) else 1)
    go.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
