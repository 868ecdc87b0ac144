"""A live table of a running job on a terminal, what the job waits for, and the tasks' lines above it."""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

from tfdist.launch.agents.inbox import Message, Stopped
from tfdist.launch.agents.messages import Event
from tfdist.launch.console.columns import choose_tasks, cut, fitting_columns, header, line, task_row
from tfdist.launch.console.job_state import Activity, JobState, TaskState, state_of
from tfdist.launch.console.lines import LineOptions, PrefixedLines
from tfdist.launch.console.stream import is_behind
from tfdist.launch.events import Phase
from tfdist.launch.job import Job
from tfdist.launch.text import duration, plain, shortened

if TYPE_CHECKING:
    from rich.text import Text


def waits_for(job: JobState, now: float) -> str:
    """`waiting for worker-1 to connect`; empty if there is nothing to say."""
    tasks, leading, running = job.tasks.values(), job.leading, job.running
    if running and job.stopped_at is not None:
        return f"stopping {_names(running)}, {duration(now - job.stopped_at)}"
    if running and job.failed:
        return f"{job.failed} has failed; waiting for {_names(running)}, {duration(now - job.failed_at)}"
    if waiting := [task for task in tasks if task.activity == Activity.WAITING]:
        return f"waiting for {_names(waiting)} to start"
    missing = [task for task in leading if task.running and task.activity != Activity.AT_BARRIER]
    if missing and any(task.activity == Activity.AT_BARRIER for task in leading):
        return f"waiting for {_names(missing)} to reach the start barrier"
    # an evaluator is outside the cluster
    missing = [task for task in running if (task.leads or task.serves) and not task.connected]
    if missing and any(task.activity == Phase.CONNECTING for task in running):
        return f"waiting for {_names(missing)} to connect"
    done = [task for task in leading if task.activity == Activity.DONE]
    still_leading = [task for task in running if task.leads]
    if done and still_leading:
        return f"{_names(done)} done; waiting for {_names(still_leading)}"
    if running and not still_leading:
        return f"waiting for {_names(running)} to end"
    if not leading or any(task.activity != Activity.TRAINING for task in leading):
        return ""
    return f"{leading[0].name} trains" if len(leading) == 1 else f"all {len(leading)} tasks train"


def _names(tasks: Iterable[TaskState]) -> str:
    return shortened((task.name for task in tasks), most=2)


REFRESH_S, TICK_S = 0.5, 1.0
"""Seconds between two drawings at least: after a change, and without one (the seconds count on). Stops and the first
failure are drawn at once."""
ROWS_BESIDES = 4
"""Lines that are not tasks: header, count of the tasks that are not shown, what is waited for, and an empty one."""


class LiveTable(PrefixedLines):
    """Shows all tasks in a table at the bottom of the terminal."""

    shows_parts = False

    def __init__(
        self, job: Job, out: TextIO, options: LineOptions | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(out, out, options, now)
        from rich.console import Console
        from rich.live import Live

        self.state, self.several_hosts = state_of(job), len(job.hosts) > 1
        self.console = Console(file=out, highlight=False)
        self.live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self.drawn_at, self.stale = 0.0, False
        self.drawn: list[str] = []
        """The lines of the last table."""

    def __enter__(self) -> "LiveTable":
        self.live.start()
        self._draw(self.now())
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._draw(self.now(), last=True)
        self.live.stop()

    def handle(self, message: Message) -> None:
        """Update the table, or print the tasks' output above it. Any message lets the seconds in the table count on."""
        if isinstance(message, Event):
            self.note(message)
        else:
            super().handle(message)
        now, failed = self.now(), self.state.failed
        self.stale = self.state.update(message, now) or self.stale
        due = now - self.drawn_at >= (REFRESH_S if self.stale else TICK_S)
        urgent = isinstance(message, Stopped) or self.state.failed != failed
        if (due or urgent) and not is_behind(self.out):
            self._draw(now)

    def show(self, text: str, file: TextIO) -> None:
        """Print text above the table."""
        self.console.print(text, end="", markup=False, emoji=False, soft_wrap=True)

    def _draw(self, now: float, last: bool = False) -> None:
        self.stale, self.drawn_at = False, now
        width, height = self.console.size
        wrapped = sum((len(line) - 1) // width for line in self.drawn if line)
        self.out.write("\r\x1b[2K\x1b[A" * wrapped)  # a narrower terminal has more rows than Live will erase
        table = picture(self.state, self.several_hosts, width, height, now, last)
        self.drawn = table.plain.splitlines()
        self.live.update(table, refresh=True)


def picture(state: JobState, several_hosts: bool, width: int, height: int, now: float, last: bool = False) -> "Text":
    """The table and the lines below it, in at most `width` columns and `height` - 1 lines.

    Unless it is the last one, its last line has room for the `^C` that a terminal prints behind it for Ctrl-C: in a
    line that is full already, it would make the terminal scroll.
    """
    from rich.text import Text

    tasks, others = choose_tasks(state, height - ROWS_BESIDES)
    rows = [task_row(task, now) for task in tasks]
    widths = fitting_columns(rows, width, several_hosts)
    text = Text(header(widths), style="", no_wrap=True, overflow="crop")
    for row in rows:
        text.append(f"\n{plain(line(row, widths))}", "red" if row.failed else None)
    notes = [others] if others else []
    if not last:
        status, left_s = waits_for(state, now), state.left_s(now)
        if left_s is not None and "time left" not in widths:
            status = f"{status}, about {duration(left_s)} left".removeprefix(", ")
        notes.append(status)
    for note in notes:
        text.append(f"\n{cut(plain(note), max(1, width - len('^C^C')))}")
    return text
