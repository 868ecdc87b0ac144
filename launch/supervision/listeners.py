"""Calls what only watches a running job: its console, its metrics, the checks of its strategy."""

import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tfdist.launch.agents.inbox import Message, Note, OnMessage, readable
from tfdist.launch.errors import TfdistError
from tfdist.launch.redact import safe_text

LONGEST = 200
"""Characters of an exception's message in a line."""


class Listeners:
    """The listeners of a job, by name. A failure of one is a line, at its first time, and never the end of the job.

    Only a `TfdistError` is passed on: a bench refuses the turn of a program with it.
    """

    def __init__(self, listeners: Mapping[str, OnMessage], keep: OnMessage) -> None:
        """Call these; `keep` writes a message of the launcher into the run's events."""
        self._listeners, self._keep = listeners, keep
        self._failed: set[str] = set()

    def __call__(self, message: Message) -> None:
        """Call each listener."""
        for name, listener in self._listeners.items():
            self.isolate(name, partial(listener, message))

    def announce(self, message: Message) -> None:
        """Keep and show a message of the launcher. It may quote the output of a task, with bytes that are not UTF-8."""
        message = readable(message)
        self._keep(message)
        self(message)

    def isolate(self, name: str, act: Callable[[], None]) -> None:
        """Call a function that only watches the job.

        Raises:
            TfdistError: the function has raised it.
        """
        try:
            act()
        except TfdistError:
            raise
        except Exception as error:
            if name not in self._failed:
                self._failed.add(name)
                self.announce(
                    Note("tfdist", f"{name} failed ({_described(error)}); the job continues. Please report this")
                )


def _described(error: Exception) -> str:
    """`KeyError: 'x', metrics.py:12`, in one line."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(safe_text(f"{type(error).__name__}: {error}").split())[:LONGEST]
    return f"{text}, {Path(place.filename).name}:{place.lineno}"
