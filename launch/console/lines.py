"""Print a running job as prefixed lines."""

from collections.abc import Callable
from typing import TextIO

from tfdist.launch.agents.messages import Event, Message, Note, Output
from tfdist.launch.noise import NOISE


def prefixed(name: str, text: str, verbose: bool) -> str:
    """Each line after `[name] `, with bytes that are not UTF-8 replaced; noise is dropped unless `verbose`."""
    lines = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").splitlines()
    return "".join(f"[{name}] {line}\n" for line in lines if verbose or not NOISE.match(line))


def printed(message: Output | Note, verbose: bool) -> str:
    """The lines of output or of a note, as `prefixed` returns them."""
    if isinstance(message, Note):
        return f"[{message.host}] {message.text}\n"
    return prefixed(message.task, message.text, verbose)


def step_values(event: Event) -> tuple[str, str, str]:
    """The step, images per second and loss of a `step` event; empty if it has none."""
    step, rate, loss = (event.event.get(name) for name in ("step", "images_per_s", "loss"))
    return str(step) if isinstance(step, int) else "", _formatted(rate, ",.1f"), _formatted(loss, ".4f")


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

    After a write has failed (a closed pipe, a full disk) it prints nothing more to that stream; the job continues.
    """

    def __init__(self, out: TextIO, err: TextIO, verbose: bool = False) -> None:
        self.out, self.err, self.verbose = out, err, verbose
        self.failed: list[TextIO] = []
        """Streams that a write to has failed."""

    def __enter__(self) -> "PrefixedLines":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def handle(self, message: Message) -> None:
        """Print what the message says to users, if anything."""
        if isinstance(message, Output | Note):
            to_err = isinstance(message, Note) or message.stream == "stderr"
            self._write(printed(message, self.verbose), self.err if to_err else self.out)
        elif isinstance(message, Event) and message.event.get("event") == "step":
            self._write(f"[{message.task}] {_step_line(message)}\n", self.out)

    def _write(self, text: str, file: TextIO) -> None:
        encoding = file.encoding or "utf-8"

        def write() -> None:
            file.write(text.encode(encoding, "replace").decode(encoding))
            file.flush()

        if text:
            self.attempt(file, write)

    def attempt(self, file: TextIO, act: Callable[[], None]) -> None:
        """Write to a stream unless an earlier write to it has failed."""
        if file not in self.failed:
            try:
                act()
            except OSError:
                self.failed.append(file)


class Quiet(PrefixedLines):
    """Prints nothing."""

    def handle(self, message: Message) -> None:
        """Ignore the message."""
