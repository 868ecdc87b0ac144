"""The only place that prints tasks' output: prefixed lines, or on a terminal a live table with the lines above it."""

import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TextIO

from tfdist.launch.agents.messages import Event, Exited, Message, Note, NotStarted, Output, Started
from tfdist.launch.diagnose import how
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
"""How the start-up lines of TensorFlow's C++ side begin. They are in the log files; errors are shown."""
REFRESH_S = 0.5


def prefixed(task: str, text: str, verbose: bool) -> str:
    """Each line with the task's name before it; noise left out unless `verbose`, bytes that are not UTF-8 marked."""
    lines = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").splitlines()
    shown = lines if verbose else [line for line in lines if not NOISE.match(line)]
    return "".join(f"[{task}] {line}\n" for line in shown)


def said(message: Output | Note, verbose: bool) -> str:
    """What a task wrote, or what we have to say of a host, as prefixed lines."""
    if isinstance(message, Note):
        return f"[{message.host}] {message.text}\n"
    return prefixed(message.task, message.text, verbose)


def step_values(event: Event) -> tuple[str, str, str]:
    """Step, images/s and loss of a `step` event, as text; empty where the task did not say."""
    step, rate, loss = (event.event.get(name) for name in ("step", "images_per_s", "loss"))
    return str(step) if isinstance(step, int) else "", number(rate, ",.1f"), number(loss, ".4f")


def number(value: object, form: str) -> str:
    """A task's number as text; empty if it is none, or larger than any that means something."""
    try:
        return format(float(value), form) if isinstance(value, int | float) else ""
    except OverflowError:
        return ""


def step_line(event: Event) -> str:
    """One `step` event as a line."""
    texts = zip(("step {}", "{} images/s", "loss {}"), step_values(event), strict=True)
    return "  ".join(form.format(text) for form, text in texts if text)


def ended(code: int) -> str:
    """The state of a task that has ended. SIGTERM is what we stop tasks with."""
    if code in (0, -signal.SIGTERM):
        return "done" if code == 0 else "stopped"
    return how(code).split(" (")[0]


class PrefixedLines:
    """Prefixed lines, as tasks write them."""

    def __init__(self, out: TextIO, err: TextIO, verbose: bool = False) -> None:
        self.out, self.err, self.verbose = out, err, verbose
        self.gone: list[TextIO] = []

    def __enter__(self) -> "PrefixedLines":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def hear(self, message: Message) -> None:
        """Print what is to be printed of one message."""
        if isinstance(message, Output | Note):
            to_err = isinstance(message, Note) or message.stream == "stderr"
            self.show(said(message, self.verbose), self.err if to_err else self.out)
        elif isinstance(message, Event) and message.event.get("event") == "step":
            self.show(f"[{message.task}] {step_line(message)}\n", self.out)

    def show(self, text: str, file: TextIO) -> None:
        """Write, if anybody reads; a console that cannot show a character shows a question mark.

        When nobody reads any more (the end of a pipe, a full disk) the job goes on and its logs are kept.
        """
        if not text or file in self.gone:
            return
        encoding = file.encoding or "utf-8"
        try:
            file.write(text.encode(encoding, "replace").decode(encoding))
            file.flush()
        except OSError:
            self.gone.append(file)


class Quiet(PrefixedLines):
    """Nothing at all."""

    def hear(self, message: Message) -> None:
        """Print nothing."""


@dataclass
class TaskRow:
    """One task in the live table."""

    task: str
    host: str
    state: str = "waiting"
    step: str = ""
    rate: str = ""
    loss: str = ""


class LiveTable(PrefixedLines):
    """A table of all tasks that stays at the bottom of the terminal, repainted twice a second at most."""

    def __init__(self, job: Job, out: TextIO, verbose: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(out, out, verbose)
        from rich.console import Console
        from rich.live import Live

        self.hosts = len(job.hosts)
        self.rows = {plan.task.name: TaskRow(plan.task.name, plan.host.name) for plan in job.plans}
        self.console = Console(file=out, highlight=False, soft_wrap=True)
        self.live = Live(
            console=self.console,
            auto_refresh=False,
            get_renderable=self.table,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.now, self.painted, self.stale = now, 0.0, False

    def __enter__(self) -> "LiveTable":
        self.paint(lambda: self.live.start(refresh=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.paint(self.live.refresh)
        self.paint(self.live.stop)

    def paint(self, act: Callable[[], None]) -> None:
        """Do something to the terminal, if it is still there; without it the job goes on, and its logs are kept."""
        if self.out not in self.gone:
            try:
                act()
            except OSError:
                self.gone.append(self.out)

    def hear(self, message: Message) -> None:
        """Bring the table up to date; lines that tasks print go above it."""
        if isinstance(message, Output | Note):
            text = said(message, self.verbose)
            if text:
                self.paint(lambda: self.console.print(text, end="", markup=False, emoji=False))
            return
        self.stale = self.update(message) or self.stale
        if self.stale and self.now() - self.painted >= REFRESH_S:  # an agent's heartbeat comes by at the latest
            self.stale, self.painted = False, self.now()
            self.paint(self.live.refresh)

    def update(self, message: Message) -> bool:
        """Change the rows; whether there was anything to change."""
        if isinstance(message, Started):
            self.rows[message.task].state = "starting"
        elif isinstance(message, NotStarted):
            self.rows[message.task].state = "not started"
        elif isinstance(message, Exited):
            self.rows[message.task].state = ended(message.code)
        elif isinstance(message, Event):
            row, event = self.rows[message.task], str(message.event.get("event"))
            row.state = {"ready": "ready", "step": "training", "barrier": "warmed up"}.get(event, row.state)
            if event == "step":
                row.step, row.rate, row.loss = step_values(message)
        else:
            return False
        return True

    def table(self) -> "Table":
        """The table as it is now."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        columns: dict[str, Literal["left", "right"]] = {
            "task": "left",
            "host": "left",
            "state": "left",
            "step": "right",
            "images/s": "right",
            "loss": "right",
        }
        for name, side in columns.items():
            if name != "host" or self.hosts > 1:
                table.add_column(name, justify=side, no_wrap=True)
        for row in self.rows.values():
            host = [row.host] if self.hosts > 1 else []
            table.add_row(row.task, *host, row.state, row.step, row.rate, row.loss)
        return table
