"""One stream that the lines of all tasks go to."""

import shutil
from collections.abc import Callable, Hashable
from typing import TextIO

from tfdist.launch.console.stream import STALL_S, Stream, has_room
from tfdist.launch.console.task_lines import TaskLines
from tfdist.launch.console.terminal import can_redraw
from tfdist.launch.text import counted


class Printer:
    """Prints lines, also such as have not ended. If the stream is not read fast enough, lines are left out."""

    def __init__(self, file: TextIO, show: Callable[[str, TextIO], None]) -> None:
        """Print to a stream by calling `show` with text and stream."""
        self.file, self._show = file, show
        self.redraws, self.terminal = can_redraw(file), file.isatty()
        self.stall_s = STALL_S
        """How long to wait for a reader that reads nothing."""
        self.left_out = 0
        """Number of lines, until it is printed."""
        self._unended: TaskLines | None = None
        """The task's line that the stream is in the middle of."""
        self._within_line = False

    def whole(self, lines: str) -> bool:
        """Print whole lines, or only count them if the stream is full; returns whether they were printed."""
        if self._is_full():
            self.left_out += lines.count("\n")
            return False
        self._write(self._next_line() + lines, unended=None)
        return True

    def part(self, lines: TaskLines, head: str, text: str, *, overwrites: bool, ended: bool) -> bool:
        """Print what is to be seen of a line: what follows `lines.shown`, or the whole line again.

        Args:
            lines: whose line it is.
            head: in front of the text, at the start of a line of the console.
            text: all of the line, as far as it is known.
            overwrites: it is a progress bar.
            ended: it is complete.

        Returns:
            Whether it was printed.
        """
        if self._is_full():
            self.left_out += ended
            return False
        continued = text[len(lines.shown) :] if text.startswith(lines.shown) else None
        if self._unended is lines:
            new = continued if continued is not None else f"\r{head}{text}\x1b[K" if overwrites else f"\n{head}{text}"
        else:
            new = text if overwrites or continued is None else continued
            if not new or text == lines.shown:
                return True
            new = f"{self._next_line()}{head}{new}"
        self._write(new + ("\n" if ended else ""), unended=None if ended else lines)
        return True

    def fitting(self, head: str, text: str) -> str:
        """The part of the text that fits in one row of the terminal."""
        return text[: max(1, shutil.get_terminal_size().columns - len(head) - 1)]

    def end_line(self) -> None:
        """End a line that has not ended; print how many lines were left out."""
        self._write(self._next_line(), unended=None)

    def catch_up(self) -> None:
        """Print how many lines were left out as soon as the stream is read again."""
        if self.left_out and has_room(self.file, self.stall_s):
            self.end_line()

    def _is_full(self) -> bool:
        full = not has_room(self.file, self.stall_s)
        if full:
            self._unended = None
        return full

    def _next_line(self) -> str:
        """What must be printed before a new line."""
        newline, number = "\n" if self._within_line else "", self.left_out
        self.left_out = 0
        return newline + (f"[tfdist] {counted(number, 'line')} not shown; the logs keep all\n" if number else "")

    def _write(self, text: str, unended: TaskLines | None) -> None:
        self._unended, self._within_line = unended, unended is not None
        if text:
            self._show(text, self.file)


def target(file: TextIO) -> Hashable:
    """What a stream writes to: the same for stdout and stderr on one terminal."""
    return file.queue if isinstance(file, Stream) else file
