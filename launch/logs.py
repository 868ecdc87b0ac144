"""The logs in a run's folder."""

from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from tfdist.launch.agents.inbox import Arrival
from tfdist.launch.agents.messages import Heartbeat, Message, Output
from tfdist.launch.json_files import dumps
from tfdist.launch.rundir import RunDir

_TAIL_BYTES = 1 << 16


class LogWriter:
    """Appends each task's output to its log, byte for byte, and all other messages to events.jsonl."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._files: dict[Path, BinaryIO] = {}

    def __enter__(self) -> "LogWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def write(self, message: Message) -> None:
        """Append one message; heartbeats are skipped."""
        if isinstance(message, Output):
            self._append(self._run_dir.log(message.task, message.stream), message.text)
        elif not isinstance(message, Heartbeat):
            entry = {"kind": type(message).__name__, **asdict(message)}
            self._append(self._run_dir.events, dumps(entry) + "\n")

    def refuse(self, arrival: Arrival) -> None:
        """Record a message about a task that is not on the host that sent it."""
        kind, host = type(arrival.message).__name__, arrival.host.name if arrival.host else ""
        self._append(self._run_dir.events, dumps({"kind": "Refused", "host": host, "message": kind}) + "\n")

    def _append(self, path: Path, text: str) -> None:
        if path not in self._files:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[path] = path.open("ab", buffering=0)
        self._files[path].write(text.encode("utf-8", "surrogateescape"))


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log; empty if the log does not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""
