"""A live table of a running job on a terminal, with the tasks' lines above it."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from tfdist.launch.agents.messages import Event, Exited, Message, NotStarted, Started
from tfdist.launch.console.lines import PrefixedLines, step_values
from tfdist.launch.console.stream import is_behind
from tfdist.launch.diagnosis.endings import describe_exit
from tfdist.launch.job import Job

if TYPE_CHECKING:
    from rich.table import Table

REFRESH_S = 0.5
NUMBERS = ("step", "images/s", "loss")
"""Right-aligned columns of the live table."""


def _exit_state(code: int) -> str:
    if code in (0, -signal.SIGTERM):  # the launcher stops tasks with SIGTERM
        return "done" if code == 0 else "stopped"
    return describe_exit(code).split(" (")[0]


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
        self.live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.live.refresh()
        self.live.stop()

    def handle(self, message: Message) -> None:
        """Update the table, or print the tasks' output above it."""
        if not isinstance(message, Event):
            super().handle(message)
        self.stale = self._update(message) or self.stale
        due = self.now() - self.drawn_at >= REFRESH_S  # the agents' heartbeats bound the delay
        if self.stale and due and not is_behind(self.out):
            self.stale, self.drawn_at = False, self.now()
            self.live.refresh()

    def show(self, text: str, file: TextIO) -> None:
        """Print text above the table."""
        self.console.print(text, end="", markup=False, emoji=False)

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
                row.step, row.rate, row.loss = step_values(message)
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
