"""Print a running job: prefixed lines, or on a terminal a live table with the lines above it."""

import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from tfdist.launch.agents.messages import Event, Exited, Message, Note, NotStarted, Output, Started
from tfdist.launch.diagnose import describe_exit
from tfdist.launch.job import Job

if TYPE_CHECKING:
    from rich.table import Table

NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog"
    r"|To enable the following instructions:"
    r"|[IW]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+\.(cc|h):\d+\]"
    r"|E\d{4} \d\d:\d\d:\d+\.\d+ +\d+ cuda_\w+\.cc:\d+\] failed call to cuInit"
    r"|/job:\w+/replica:\d+/task:\d+$"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] \S+\.(cc|h):\d+\]"
)
"""Start of the lines that TensorFlow's C++ code logs on start-up. Only the log files keep them; errors are printed."""
REFRESH_S = 0.5
NUMBERS = ("step", "images/s", "loss")
"""Right-aligned columns of the live table."""


def prefixed(name: str, text: str, verbose: bool) -> str:
    """Each line after `[name] `, with bytes that are not UTF-8 replaced; noise is dropped unless `verbose`."""
    lines = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").splitlines()
    return "".join(f"[{name}] {line}\n" for line in lines if verbose or not NOISE.match(line))


def _lines(message: Output | Note, verbose: bool) -> str:
    if isinstance(message, Note):
        return f"[{message.host}] {message.text}\n"
    return prefixed(message.task, message.text, verbose)


def _step_values(event: Event) -> tuple[str, str, str]:
    step, rate, loss = (event.event.get(name) for name in ("step", "images_per_s", "loss"))
    return str(step) if isinstance(step, int) else "", _formatted(rate, ",.1f"), _formatted(loss, ".4f")


def _formatted(value: object, form: str) -> str:
    try:
        return format(float(value), form) if isinstance(value, int | float) else ""
    except OverflowError:  # an int beyond the range of a float
        return ""


def _step_line(event: Event) -> str:
    texts = zip(("step {}", "{} images/s", "loss {}"), _step_values(event), strict=True)
    return "  ".join(form.format(text) for form, text in texts if text)


def _exit_state(code: int) -> str:
    if code in (0, -signal.SIGTERM):  # the launcher stops tasks with SIGTERM
        return "done" if code == 0 else "stopped"
    return describe_exit(code).split(" (")[0]


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
            self._write(_lines(message, self.verbose), self.err if to_err else self.out)
        elif isinstance(message, Event) and message.event.get("event") == "step":
            self._write(f"[{message.task}] {_step_line(message)}\n", self.out)

    def _write(self, text: str, file: TextIO) -> None:
        encoding = file.encoding or "utf-8"

        def write() -> None:
            file.write(text.encode(encoding, "replace").decode(encoding))
            file.flush()

        if text:
            self._try(file, write)

    def _try(self, file: TextIO, act: Callable[[], None]) -> None:
        if file not in self.failed:
            try:
                act()
            except OSError:
                self.failed.append(file)


class Quiet(PrefixedLines):
    """Prints nothing."""

    def handle(self, message: Message) -> None:
        """Ignore the message."""


@dataclass
class TaskRow:
    """A row of the live table."""

    task: str
    host: str
    state: str = "waiting"
    step: str = ""
    rate: str = ""
    loss: str = ""


class LiveTable(PrefixedLines):
    """Shows all tasks in a table at the bottom of the terminal, redrawn at most every `REFRESH_S` seconds."""

    def __init__(self, job: Job, out: TextIO, verbose: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(out, out, verbose)
        from rich.console import Console
        from rich.live import Live

        self.show_hosts = len(job.hosts) > 1
        self.rows = {plan.task.name: TaskRow(plan.task.name, plan.host.name) for plan in job.plans}
        self.console = Console(file=out, highlight=False, soft_wrap=True)
        self.live = Live(
            console=self.console,
            auto_refresh=False,
            get_renderable=self._table,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.now, self.drawn_at, self.stale = now, 0.0, False

    def __enter__(self) -> "LiveTable":
        self._try(self.out, lambda: self.live.start(refresh=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._try(self.out, self.live.refresh)
        self._try(self.out, self.live.stop)

    def handle(self, message: Message) -> None:
        """Update the table, or print the tasks' output above it."""
        if isinstance(message, Output | Note):
            text = _lines(message, self.verbose)
            if text:
                self._try(self.out, lambda: self.console.print(text, end="", markup=False, emoji=False))
            return
        self.stale = self._update(message) or self.stale
        if self.stale and self.now() - self.drawn_at >= REFRESH_S:  # the agents' heartbeats bound the delay
            self.stale, self.drawn_at = False, self.now()
            self._try(self.out, self.live.refresh)

    def _update(self, message: Message) -> bool:
        if isinstance(message, Started):
            self.rows[message.task].state = "starting"
        elif isinstance(message, NotStarted):
            self.rows[message.task].state = "not started"
        elif isinstance(message, Exited):
            self.rows[message.task].state = _exit_state(message.code)
        elif isinstance(message, Event):
            row, event = self.rows[message.task], str(message.event.get("event"))
            row.state = {"ready": "ready", "step": "training", "barrier": "warmed up"}.get(event, row.state)
            if event == "step":
                row.step, row.rate, row.loss = _step_values(message)
        else:
            return False
        return True

    def _table(self) -> "Table":
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for name in ("task", "host", "state", "step", "images/s", "loss"):
            if name != "host" or self.show_hosts:
                table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
        for row in self.rows.values():
            host = [row.host] if self.show_hosts else []
            table.add_row(row.task, *host, row.state, row.step, row.rate, row.loss)
        return table
