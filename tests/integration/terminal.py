"""A pseudo-terminal with a process in it, as a terminal window has a shell."""

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs a command whose controlling terminal it is. Closing it sends SIGHUP, as closing a window does."""

    def __init__(self, argv: Sequence[str], cwd: Path) -> None:
        self._master, slave = pty.openpty()
        self.text = ""
        """Everything printed, without escape sequences."""
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def type(self, text: str) -> None:
        """Type into it; \\x03 is Ctrl-C."""
        os.write(self._master, text.encode())

    def wait_for(self, pattern: str, timeout_s: float = 60.0) -> "re.Match[str]":
        """Read until the regular expression matches what was printed so far."""
        deadline = time.monotonic() + timeout_s
        while not (match := re.search(pattern, self.text)):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.text[-2000:]!r}"
            assert self._read(), f"ended without {pattern!r}: {self.text[-2000:]!r}"
        return match

    def wait(self, timeout_s: float = 60.0) -> int:
        """Read until the command has exited; its exit code."""
        deadline = time.monotonic() + timeout_s
        while self._read():
            assert time.monotonic() < deadline, self.text
        return self.process.wait(timeout=timeout_s)

    def close(self) -> None:
        """Close the window."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
            self.process.wait(timeout=60)

    def _read(self) -> bool:
        """Read what is printed within half a second; whether there may be more."""
        if select.select([self._master], [], [], 0.5)[0]:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # nobody has it open any more
                return False
            self.text += _ESCAPES.sub("", data.decode(errors="replace")).replace("\r\n", "\n")
        return True
