"""Connections that come and stay, with real sockets."""

import socket
import threading
from contextlib import contextmanager

from tfdist.launch import connections
from tfdist.launch.connections import MOST, answered


@contextmanager
def echo(arrived=None):
    """The address of a server that answers a line with itself, and the connections that it has had.

    `arrived`: a semaphore, released for each connection.
    """
    served = []

    def answer(client):
        served.append(client)
        if arrived is not None:
            arrived.release()
        data = client.recv(100)
        while data and not data.endswith(b"\n"):
            data += client.recv(100) or b"\n"
        if data == b"raise\n":
            raise RecursionError
        client.sendall(data)

    listener = socket.create_server(("127.0.0.1", 0))
    with answered(listener, answer, "echo"):
        yield listener.getsockname(), served
    assert listener.fileno() == -1
    assert not [client for client in served if client.fileno() != -1]
    assert not [thread for thread in threading.enumerate() if thread.name == "echo"]


def said(address, data=b"x\n"):
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(data)
        return client.recv(100)


def test_idle_connections_make_room_for_the_next_one():
    arrived = threading.Semaphore(0)
    with echo(arrived) as (address, served):
        idle = [socket.create_connection(address, timeout=10) for _ in range(5 * MOST)]
        assert said(address) == b"x\n"
        assert all(arrived.acquire(timeout=10) for _ in range(5 * MOST + 1))
        assert len([client for client in served if client.fileno() != -1]) <= MOST
        for client in idle[: 4 * MOST]:
            assert client.recv(1) == b""  # closed
        for client in idle:
            client.close()


def test_a_connection_ends_in_time_however_it_drips(monkeypatch):
    monkeypatch.setattr(connections, "SECONDS", 0.3)
    with echo() as (address, _), socket.create_connection(address, timeout=10) as client:
        dripping = threading.Event()

        def drip():
            try:
                while not dripping.wait(0.05):
                    client.sendall(b"x")
            except OSError:
                pass

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert b"\n" not in client.recv(100)
        except ConnectionResetError:
            pass
        finally:
            dripping.set()
            thread.join()


def test_what_a_client_raises_ends_its_connection_only(capfd):
    with echo() as (address, _):
        assert said(address, b"raise\n") == b""
        assert said(address) == b"x\n"
    assert capfd.readouterr() == ("", "")


def test_without_a_thread_the_connection_ends(monkeypatch):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.endswith(" client"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with echo() as (address, _):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with socket.create_connection(address, timeout=10) as client:
                assert client.recv(1) == b""
        assert said(address) == b"x\n"
