"""Logs of a run."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from tfdist.launch.agents.messages import Heartbeat, Message, Output
from tfdist.launch.rundir import RunDir


class Log:
    """The run's folder as it fills: each task's output byte for byte, and all events."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._files: dict[Path, BinaryIO] = {}

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def write(self, message: Message) -> None:
        """Keep one message."""
        if isinstance(message, Output):
            text = message.text.encode("utf-8", "surrogateescape")
            self._file(self._run_dir.log(message.task, message.stream)).write(text)
        elif not isinstance(message, Heartbeat):
            line = {"kind": type(message).__name__, **asdict(message)}
            self._file(self._run_dir.events).write(json.dumps(line).encode() + b"\n")

    def _file(self, path: Path) -> BinaryIO:
        if path not in self._files:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[path] = path.open("ab", buffering=0)
        return self._files[path]
