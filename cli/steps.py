"""The current step of a command, on stderr, for commands that take longer than expected."""

import shutil
import threading
from types import TracebackType
from typing import TextIO

PATIENCE_S = 2.0
"""Nothing is printed before."""


class Steps:
    """Prints the current step once the context has lasted `patience_s`: on a terminal one line that is overwritten and
    erased at the end, elsewhere one line per step."""

    def __init__(self, out: TextIO, patience_s: float = PATIENCE_S) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._step = ""
        self._visible = False
        self._timer = threading.Timer(patience_s, self._start)
        self._timer.daemon = True

    def __enter__(self) -> "Steps":
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._visible and self._out.isatty():
            self._write("\r\x1b[K")

    def show(self, step: str) -> None:
        """Make `step` the current one."""
        with self._lock:
            self._step = step
            if self._visible:
                self._print()

    def _start(self) -> None:
        with self._lock:
            self._visible = True
            if self._step:
                self._print()

    def _print(self) -> None:
        line = f"{self._step} ..."
        if self._out.isatty():
            self._write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
        else:
            self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
