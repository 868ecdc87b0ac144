"""The control socket of a running launcher: `tfdist stop` and others reach it through the run's folder.

A client sends one JSON object in a line and receives one. Only the owner of the socket can connect (mode 0600).
"""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from tfdist.launch.agents.inbox import Inbox
from tfdist.launch.agents.launcher_messages import Interrupted
from tfdist.launch.redact import safe_text
from tfdist.launch.runs.rundir import RunDir, open_folder
from tfdist.launch.typed_json import from_json, parse_json

ANSWER_S = 5.0
"""Time for a request to arrive once a client has connected, and for its answer."""
STOPPED_BY = "tfdist stop"
"""The command in the outcome of a run that a request has stopped."""
_LONGEST = 1 << 16
"""Bytes of a request or an answer."""


@dataclass(frozen=True)
class Answer:
    """What a launcher answers to `status` and `stop`."""

    pid: int
    running: tuple[str, ...]
    """The tasks that run."""


@contextmanager
def serve(run_dir: RunDir, inbox: Inbox, running: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Answer requests on the run's control socket until the context ends. Without a socket the job runs all the same.

    Args:
        run_dir: the folder for the socket.
        inbox: receives an `Interrupted` for each request to stop.
        running: the tasks that run, for status requests.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            listener = _listener(run_dir, stack)

            def answer(request: Mapping[str, Any]) -> dict[str, Any]:
                if request.get("request") == "stop":
                    inbox.put(None, Interrupted(signal.SIGTERM, STOPPED_BY))
                elif request.get("request") != "status":
                    return {"error": "unknown request: use status or stop"}
                return asdict(Answer(os.getpid(), tuple(running())))

            thread = threading.Thread(target=_accept, args=(listener, answer), name="control", daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)  # ends accept()
        yield


def request(run_dir: RunDir, name: str) -> Answer:
    """Send a `status` or `stop` request to a run's launcher. Anybody may have made a socket that looks like its own.

    Raises:
        OSError: there is no launcher (ConnectionRefusedError, FileNotFoundError), or it does not answer (TimeoutError).
    """
    with ExitStack() as stack:
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.settimeout(ANSWER_S)
        folder = os.open(run_dir.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, folder)
        client.connect(_address(folder, run_dir))
        client.sendall(json.dumps({"request": name}).encode() + b"\n")
        line = _line(client)
    try:
        answer = from_json(parse_json(line), Answer)
    except ValueError:  # the launcher ended while it answered
        raise ConnectionRefusedError(f"no answer from {run_dir.control}") from None
    return Answer(answer.pid, tuple(map(safe_text, answer.running)))


def answers(run_dir: RunDir) -> bool:
    """Whether a launcher listens on the run's socket, also a suspended one. A full disk holds no other trace of it."""
    try:
        request(run_dir, "status")
    except TimeoutError:
        return True
    except OSError:
        return False
    return True


def _listener(run_dir: RunDir, stack: ExitStack) -> socket.socket:
    folder = open_folder(run_dir.path)
    stack.callback(os.close, folder)
    address = _address(folder, run_dir)
    with suppress(FileNotFoundError):
        os.unlink(address)  # noqa: PTH108 - of a killed launcher
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(address)
    stack.callback(_remove, address)
    os.chmod(address, 0o600)  # noqa: PTH101 - before listen(), so that nobody else can have connected
    listener.listen()
    return listener


def _remove(address: str) -> None:
    with suppress(OSError):
        os.unlink(address)  # noqa: PTH108


def _address(folder: int, run_dir: RunDir) -> str:
    """A short name of the socket: addresses are limited to 107 bytes (unix(7)), paths are not."""
    return f"/proc/self/fd/{folder}/{run_dir.control.name}"


def _accept(listener: socket.socket, answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, suppress(OSError, ValueError):
            request = parse_json(_line(client))
            reply = answer(request) if isinstance(request, dict) else {"error": "not a JSON object"}
            client.sendall(json.dumps(reply).encode() + b"\n")


def _line(stream: socket.socket) -> bytes:
    data, until = b"", time.monotonic() + ANSWER_S
    while not data.endswith(b"\n") and len(data) < _LONGEST:
        stream.settimeout(max(0.001, until - time.monotonic()))  # for all of it, however it drips
        if not (part := stream.recv(4096)):
            break
        data += part
    return data
