"""What is being done, on stderr: only once all of it has taken long enough for a person to wonder."""

import shutil
import threading
from types import TracebackType
from typing import TextIO

PATIENCE_S = 2.0


class Steps:
    """While this lasts: one line that changes on a terminal, else a line a step."""

    def __init__(self, out: TextIO, patience_s: float = PATIENCE_S) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._step = ""
        self._speaks = False
        self._timer = threading.Timer(patience_s, self._speak)
        self._timer.daemon = True

    def __enter__(self) -> "Steps":
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._speaks and self._out.isatty():
            self._write("\r\x1b[K")

    def tell(self, step: str) -> None:
        """This begins now."""
        with self._lock:
            self._step = step
            if self._speaks:
                self._show()

    def _speak(self) -> None:
        with self._lock:
            self._speaks = True
            if self._step:
                self._show()

    def _show(self) -> None:
        line = f"{self._step} ..."
        if self._out.isatty():
            self._write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
        else:
            self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
