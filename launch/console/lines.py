"""Print a running job as prefixed lines."""

from collections import deque
from collections.abc import Sequence
from typing import TextIO

from tfdist.launch.agents.messages import Event, Message, Note, Output
from tfdist.launch.console.stream import has_room
from tfdist.launch.noise import without_noise
from tfdist.launch.text import counted

SCREEN = 30
"""Lines that a reader still sees."""


def prefixed(name: str, text: str, verbose: bool) -> str:
    """Each line after `[name] `, with bytes that are not UTF-8 replaced; noise is dropped unless `verbose`."""
    lines = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").splitlines()
    return "".join(f"[{name}] {line}\n" for line in (lines if verbose else without_noise(lines)))


def printed(message: Output | Note, verbose: bool) -> str:
    """The lines of output or of a note, as `prefixed` returns them."""
    if isinstance(message, Note):
        return f"[{message.host}] {message.text}\n"
    return prefixed(message.task, message.text, verbose)


def step_values(event: Event) -> tuple[str, str, str]:
    """The step (of the total), images per second and loss of a `step` event; empty if it has none."""
    step, steps, rate, loss = (event.event.get(name) for name in ("step", "steps", "images_per_s", "loss"))
    total = f"/{steps}" if isinstance(steps, int) else ""
    return f"{step}{total}" if isinstance(step, int) else "", _formatted(rate, ",.1f"), _formatted(loss, ".4f")


def _formatted(value: object, form: str) -> str:
    try:
        return format(float(value), form) if isinstance(value, int | float) else ""
    except OverflowError:  # an int beyond the range of a float
        return ""


def _step_line(event: Event) -> str:
    texts = zip(("step {}", "{} images/s", "loss {}"), step_values(event), strict=True)
    return "  ".join(form.format(text) for form, text in texts if text)


class PrefixedLines:
    """Prints the tasks' output and steps as prefixed lines, as they arrive.

    If the streams are not read fast enough, lines are left out and counted.
    """

    def __init__(self, out: TextIO, err: TextIO, verbose: bool = False) -> None:
        self.out, self.err, self.verbose = out, err, verbose
        self.left_out: dict[TextIO, int] = {}
        """Number of lines by stream, until it is printed."""
        self.last: deque[str] = deque(maxlen=SCREEN)
        """The last lines on `err`, and those on `out` if both are one terminal."""

    def __enter__(self) -> "PrefixedLines":
        return self

    def __exit__(self, *_: object) -> None:
        for file in list(self.left_out):
            self.show(self._count_left_out(file), file)

    def handle(self, message: Message) -> None:
        """Print what the message says to users, if anything."""
        if isinstance(message, Output | Note):
            to_err = isinstance(message, Note) or message.stream == "stderr"
            self.relay(printed(message, self.verbose), self.err if to_err else self.out)
        elif isinstance(message, Event) and message.event.get("event") == "step":
            self.relay(f"[{message.task}] {_step_line(message)}\n", self.out)
        for file in list(self.left_out):
            self.relay("", file)

    def relay(self, lines: str, file: TextIO) -> None:
        """Print whole lines, or only count them if the stream is full."""
        if not has_room(file):
            self.left_out[file] = self.left_out.get(file, 0) + lines.count("\n")
        elif lines or file in self.left_out:
            self.show(self._count_left_out(file) + lines, file)
            if file is self.err or (self.out.isatty() and self.err.isatty()):
                self.last.extend(lines.splitlines()[-SCREEN:])

    def shows(self, task: str, lines: Sequence[str]) -> bool:
        """Whether these lines of a task have been printed and are still on the screen."""
        printed = list(self.last)
        wanted = prefixed(task, "\n".join(lines), verbose=False).splitlines()
        of_task = [line for line in printed if line.startswith(f"[{task}] ")]
        return bool(wanted) and all(line in of_task for line in wanted)

    def _count_left_out(self, file: TextIO) -> str:
        number = self.left_out.pop(file, 0)
        return f"[tfdist] {counted(number, 'line')} not shown; the logs keep all\n" if number else ""

    def show(self, text: str, file: TextIO) -> None:
        """Print text, in one write."""
        file.write(text)
        file.flush()


class Quiet(PrefixedLines):
    """Prints nothing."""

    def handle(self, message: Message) -> None:
        """Ignore the message."""
