"""SIGTERM and SIGUSR1 as a request to save and exit. No TensorFlow."""

import signal
from collections.abc import Mapping
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class PreemptedError(Exception):
    """The training was saved as a signal requested, and the task must exit with code 42."""


class SaveRequests:
    """Catches the signals from `catch` until `release`."""

    def __init__(self) -> None:
        """Catch nothing yet: a task that has trained nothing just ends."""
        self.signal: str | None = None
        """The name of the last one that arrived."""
        self._before: Mapping[signal.Signals, Any] = {}

    def catch(self) -> None:
        """Note the signals from now on. Only for the main thread."""
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}

    def release(self) -> None:
        """Handle the signals as before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
