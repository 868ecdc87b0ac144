"""Print a running job as prefixed lines."""

import math
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TextIO

from tfdist.launch.agents.inbox import HostReady, Message, Note, Restarting, Stopped
from tfdist.launch.agents.messages import Event, Exited, Output
from tfdist.launch.console.job_state import number_text, step_text, step_values
from tfdist.launch.console.stream import STALL_S, Stream, has_room
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.tensorflow_output import NOISE, NoiseFilter
from tfdist.launch.text import KEPT_CHARACTERS, counted, has_controls, plain, replace_surrogates, shorten, visible

SYMBOLS = "\u2501\u2500\u2026"
"""The characters of bars and cut texts."""


def can_redraw(file: TextIO) -> bool:
    """Whether the file is a terminal whose lines can be overwritten and that shows bars."""
    try:
        SYMBOLS.encode(file.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return file.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


MOST_CHARACTERS = 1 << 16
"""Characters that are kept at the end of a blank line, or one with control characters, that has not ended."""


@dataclass
class TaskLines:
    """Splits text into lines, without TensorFlow's start-up messages unless `verbose`."""

    task: str
    verbose: bool
    rest: str = ""
    """The line that has not ended. Of a long plain line, what was not shown yet."""
    shown: str = ""
    """What the console shows of `rest`."""
    shown_at: float | None = None
    """When something of the line that has not ended was shown last; None: nothing was."""
    noise: bool = False
    """The line that has not ended is a start-up message."""
    filter: NoiseFilter = field(default_factory=NoiseFilter)

    @property
    def overwrites(self) -> bool:
        """Whether the line that has not ended is a progress bar."""
        return has_controls(self.rest.rstrip("\r"))

    def add(self, text: str) -> tuple[str | None, list[str]]:
        """Add text that follows.

        Returns:
            The rest of a line of which something was shown, if it has ended; and the lines that have ended.
        """
        *lines, rest = (self.rest + text).split("\n")
        ending = None
        if lines and self.noise:
            del lines[0]
        elif lines and self.shown_at is not None:
            ending = lines.pop(0)
        if not self.verbose:
            lines = list(self.filter.keep(lines))
        self.noise = not self.verbose and (NOISE.match(rest) is not None or (self.noise and rest == self.rest + text))
        if self.noise:
            self.rest = ""
        elif has_controls(rest) or rest.isspace():
            self.rest = shorten(rest)[-MOST_CHARACTERS:]
        else:
            self.rest = rest
        return ending, lines

    def show(self, text: str, now: float) -> None:
        """Take note that the console shows `text` for `rest`."""
        self.shown, self.shown_at = text, now
        if len(self.rest) > KEPT_CHARACTERS and not self.overwrites:
            self.rest = self.shown = ""


class Printer:
    """Prints lines, including those that have not ended. If the stream is not read fast enough, lines are left out."""

    def __init__(self, file: TextIO, show: Callable[[str, TextIO], None]) -> None:
        """Print to a stream by calling `show` with text and stream."""
        self.file, self._show = file, show
        self.redraws = can_redraw(file)
        self.terminal = file.isatty()
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
            if continued is not None:
                new = continued
            elif overwrites:
                new = f"\r{head}{text}\x1b[K"
            else:
                new = f"\n{head}{text}"
        else:
            new = text if overwrites or continued is None else continued
            if not new or text == lines.shown:
                return True
            new = f"{self._next_line()}{head}{new}"
        self._write(new + ("\n" if ended else ""), unended=None if ended else lines)
        return True

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
        newline = "\n" if self._within_line else ""
        number = self.left_out
        self.left_out = 0
        return newline + (f"[tfdist] {counted(number, 'line')} not shown; the logs keep all\n" if number else "")

    def _write(self, text: str, unended: TaskLines | None) -> None:
        self._unended = unended
        self._within_line = unended is not None
        if text:
            self._show(text, self.file)


def same_target(one: TextIO, other: TextIO) -> bool:
    """Whether two streams write to the same terminal, pipe or file."""
    return one is other or (isinstance(one, Stream) and isinstance(other, Stream) and one.queue is other.queue)


STEPS_S = 10.0
"""Seconds between two steps that are printed where there is no terminal."""
UPDATE_S = 1.0
"""Seconds between two updates of a progress bar."""
SCREEN = 30
"""Lines that count as still on the screen."""


@dataclass(frozen=True)
class LineOptions:
    """What is printed, and how."""

    verbose: bool = False
    """Print TensorFlow's start-up messages."""
    prefix: bool = True
    """Put the task's name in front of each line."""
    timestamps: bool = False
    """Put the time (UTC, when it is printed) in front of each line."""
    quiet: bool = False
    """Print only what the tasks write."""
    tasks: frozenset[str] | None = None
    """Print the lines of these tasks only; None: of all."""
    run_dir: RunDir | None = None
    """Folder of the logs, which alone have the tracebacks of tasks that fail after another one; None: print all."""


MOST_EXCEPTION = 160
"""Characters of the line for a traceback that is not printed."""
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b")


@dataclass
class _Fold:
    """Lines of a task that fails after another one: they are not printed."""

    lines: int = 0
    exception: str = "failed"
    """The last line that names one."""

    def add(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.lines += 1
            self.exception = line if _EXCEPTION.match(line) else self.exception


class PrefixedLines:
    """Prints the tasks' output and steps as prefixed lines, as they arrive.

    A line that has not ended is printed as far as it came, and continued. A progress bar is updated in place on a
    terminal, and elsewhere printed once a second and at its end.
    """

    has_table = False
    """A table below the lines shows the steps; lines that have not ended are not printed."""

    def __init__(
        self, out: TextIO, err: TextIO, options: LineOptions | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.out = out
        self.err = err
        self.options = options or LineOptions()
        self.now = now
        self.printers = {"stdout": Printer(out, self.show)}
        """Printers by stream; the same one if both are one terminal, pipe or file."""
        self.printers["stderr"] = self.printers["stdout"] if same_target(out, err) else Printer(err, self.show)
        self.texts: dict[tuple[str, str], TaskLines] = {}
        """Lines by task and stream."""
        self.last: deque[tuple[str, str]] = deque(maxlen=SCREEN)
        """Task and text of the last lines on `err`, and of those on `out` if both are one terminal."""
        self.failed = ""
        """The first task that has failed."""
        self.folds: dict[str, _Fold] = {}
        """Tasks whose tracebacks are folded, until they exit."""
        self.stepping = ""
        """The task whose steps are printed."""
        self.stepped_at = -math.inf
        """When its last one was printed."""

    def __enter__(self) -> "PrefixedLines":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the lines that have not ended, and print how many were left out."""
        self._end_lines(self.texts)
        for printer in self.printers.values():
            printer.end_line()

    def handle(self, message: Message) -> None:
        """Print a message, if it is for users."""
        match message:
            case Note(host, text):
                self._say(host, text)
            case HostReady(host):
                self._say(host, "connected; the next restart uses it")
            case Output(task, stream, text) if stream != "stacks" and self._prints(task):
                self._print_text(task, stream, replace_surrogates(text))
            case Event(task, event={"event": "failed"}):
                self.failed = self.failed or task
            case Event(task, event={"event": "step"}):  # it continues after what looked like a failure
                self._unfold(task, message.attempt)
                if self._prints(task) and not self.options.quiet and not self.has_table:
                    self._print_step(task, message.event)
            case Stopped(tasks, grace_s, reason=reason):
                for printer in self.printers.values():  # no longer wait for slow readers
                    printer.stall_s = 0.0
                if reason:
                    verb = "stopping" if grace_s else "killing"
                    advice = "; Ctrl-C again kills them" if reason == "Ctrl-C" and grace_s else ""
                    self._say("tfdist", f"{reason}: {verb} {counted(len(tasks), 'task')}{advice}")
            case Restarting(reason=reason):
                self.failed = ""
                for printer in self.printers.values():
                    printer.stall_s = STALL_S
                self._say("tfdist", reason)
            case Exited(task, code):
                self.stepping = "" if self.stepping == task else self.stepping
                self._end_lines([key for stream in self.printers if (key := (task, stream)) in self.texts])
                self.failed = self.failed or (task if code else "")
                self._unfold(task, message.attempt)
        for printer in self.printers.values():
            printer.catch_up()

    def show(self, text: str, file: TextIO) -> None:
        """Print text, in one write."""
        file.write(text)
        file.flush()

    def shows(self, task: str, lines: Iterable[str]) -> bool:
        """Whether these lines of a task have been printed, and those who read stderr still see them."""
        wanted = {(task, line.rstrip()) for line in lines if line.strip()}
        return bool(wanted) and wanted <= set(self.last)

    def _say(self, host: str, text: str) -> None:
        if not self.options.quiet:
            self.printers["stderr"].whole(plain(f"[{host}] {text}\n"))

    def _print_step(self, task: str, event: Mapping[str, Any]) -> None:
        step, steps, images_per_s, loss = step_values(event)
        if not self.out.isatty():  # a file gets those of one task, now and then and the last one
            due = step == steps or self.now() - self.stepped_at >= STEPS_S
            if task != (self.stepping or task) or not due:
                return
            self.stepping, self.stepped_at = task, self.now()
        texts = (step_text(step, steps), number_text(images_per_s, ",.1f"), number_text(loss, ".4f"))
        forms = zip(("step {}", "{} images/s", "loss {}"), texts, strict=True)
        line = "  ".join(form.format(text) for form, text in forms if text)
        self._print_lines(task, [line], self.printers["stdout"])

    def _prints(self, task: str) -> bool:
        return self.options.tasks is None or task in self.options.tasks

    def _head(self, task: str) -> str:
        prefix = f"[{plain(task)}] " if self.options.prefix else ""
        if not self.options.timestamps:
            return prefix
        return f"{datetime.now(timezone.utc).isoformat(timespec='milliseconds').removesuffix('+00:00')}Z {prefix}"

    def _print_text(self, task: str, stream: str, text: str) -> None:
        lines = self.texts.setdefault((task, stream), TaskLines(task, self.options.verbose))
        printer = self.printers[stream]
        controls = has_controls(lines.rest) or has_controls(text)  # of a line that this text ends, too
        ending, whole = lines.add(text)
        if controls:
            shown = [(line, visible(line, printer.terminal)) for line in whole]
            whole = [text for line, text in shown if text or not line]
        if stream == "stderr":
            whole = self._fold(task, whole)
        if ending is not None:
            self._print_part(lines, ending, printer, ended=True)
        self._print_lines(task, whole, printer)
        if not self.has_table:
            # of the line that has not ended, a progress bar is not printed too often
            folded = stream == "stderr" and task in self.folds
            just_shown = lines.shown_at is not None and self.now() - lines.shown_at < UPDATE_S
            if lines.rest.strip() and not folded and not (lines.overwrites and just_shown):
                self._print_part(lines, lines.rest, printer, ended=False)
        elif len(lines.rest) > KEPT_CHARACTERS and not lines.overwrites:
            self._print_lines(task, [lines.rest], printer)
            lines.rest = ""

    def _fold(self, task: str, lines: list[str]) -> list[str]:
        """The lines that are printed: those before the traceback of a task that fails after another one."""
        start = 0
        if task not in self.folds:
            if self.options.run_dir is None or self.options.verbose or self.failed in ("", task):
                return lines
            start = next((at for at, line in enumerate(lines) if line.startswith("Traceback (most")), len(lines))
        if lines[start:]:
            self.folds.setdefault(task, _Fold()).add(lines[start:])
        return lines[:start]

    def _unfold(self, task: str, attempt: int) -> None:
        """Print a line for those that were not printed; the task has exited, or did not fail."""
        if (fold := self.folds.pop(task, None)) and self.options.run_dir is not None:
            log = self.options.run_dir.log(task, "stderr", attempt)
            text = f"{fold.exception[:MOST_EXCEPTION]} ({counted(fold.lines, 'line')} in {log})"
            self._print_lines(task, [text], self.printers["stderr"])

    def _print_lines(self, task: str, lines: list[str], printer: Printer) -> None:
        if self.options.prefix and not (all(lines) and not any(map(str.isspace, lines))):  # it would stand alone
            lines = [line for line in lines if line and not line.isspace()]
        head = self._head(task)
        if lines and printer.whole(head + f"\n{head}".join(lines) + "\n"):
            self._remember(task, lines, printer)

    def _print_part(self, lines: TaskLines, line: str, printer: Printer, ended: bool) -> None:
        overwrites = has_controls(line.rstrip("\r"))
        head = self._head(lines.task)
        text = visible(line, printer.terminal and ended)
        if not overwrites or printer.redraws:
            if overwrites and not ended:  # in one row of the terminal
                text = text[: max(1, shutil.get_terminal_size().columns - len(head) - 1)]
            printed = printer.part(lines, head, text, overwrites=overwrites, ended=ended)
        else:
            printed = text in ("", lines.shown) or printer.whole(f"{head}{text}\n")
        if not ended:
            lines.show(text if printed else "", self.now())
            return
        lines.shown, lines.shown_at = "", None
        if printed:
            self._remember(lines.task, [text], printer)

    def _end_lines(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            lines = self.texts[key]
            if lines.rest or lines.shown_at is not None:
                self._print_text(*key, "\n")

    def _remember(self, task: str, lines: Sequence[str], printer: Printer) -> None:
        if printer is self.printers["stderr"] or (self.out.isatty() and self.err.isatty()):
            self.last.extend((task, line.rstrip()) for line in lines[-SCREEN:])
