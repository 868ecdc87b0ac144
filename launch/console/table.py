"""A live table of a running job on a terminal, what the job waits for, and the tasks' lines above it."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from tfdist.launch.agents.inbox import Message, Stopped
from tfdist.launch.console.job_state import TIMELESS, Activity, JobState, TaskState, number_text, state_of, step_text
from tfdist.launch.console.lines import LineOptions, PrefixedLines
from tfdist.launch.console.stream import is_behind
from tfdist.launch.events import Phase
from tfdist.launch.job import Job
from tfdist.launch.text import duration, plain, shortened

if TYPE_CHECKING:
    from rich.text import Text


def row_texts(task: TaskState, now: float, waits: float | None = None) -> dict[str, str]:
    """What the table shows of a task, by name of the column; without the bar. `waits`: share of its time."""
    left_s = task.left_s(now)
    return {
        "task": task.name,
        "host": task.host,
        "state": state_text(task, now),
        "step": step_text(task.step, task.steps),
        "images/s": number_text(task.images_per_s, ",.1f"),
        "waits": number_text(waits, ".0%"),
        "loss": number_text(task.loss, ".4f"),
        "time left": "" if left_s is None else duration(left_s),
    }


def state_text(task: TaskState, now: float) -> str:
    """The activity of the task, with its duration where that is useful: `importing 3 s`.

    Of an evaluator that waits for the next checkpoint, its last result: `accuracy 0.913`.
    """
    if task.activity == Activity.READY and task.accuracy is not None:
        return f"accuracy {task.accuracy:.3f}"
    seconds = int(now - task.since)
    timeless = task.ended or task.activity in TIMELESS or seconds < 1
    return str(task.activity) if timeless else f"{task.activity} {duration(seconds)}"


def choose_tasks(job: JobState, most: int) -> tuple[list[TaskState], str]:
    """Choose at most this many tasks in their order: failed ones, the first one, the slowest; and what the others do.

    The others are counted by activity: `62 more: 60 training, 2 done`.
    """
    tasks = list(job.tasks.values())

    def rank(index: int) -> tuple[bool, bool, bool, int]:
        task = tasks[index]
        return not task.failed, index > 0, task.ended or task.activity == Activity.SERVING, task.step or 0

    order = sorted(range(len(tasks)), key=rank)
    wanted = set(order[: max(1, most)])
    others = Counter(str(task.activity) for index, task in enumerate(tasks) if index not in wanted)
    rest = ""
    if others:
        counts = ", ".join(f"{number} {activity}" for activity, number in others.most_common())
        rest = f"{others.total()} more: {counts}"
    return [tasks[index] for index in sorted(wanted)], rest


GAP = 2
"""Characters between columns."""
BAR = "bar"
COLUMNS = {"task": 8, "host": 4, "state": 11, "step": 7, BAR: 8, "images/s": 8, "waits": 5, "loss": 6, "time left": 9}
"""The smallest number of characters of each column, so that columns do not come and go while numbers grow."""
NUMBERS = frozenset(["step", "images/s", "waits", "loss", "time left"])
"""Columns that are right-aligned."""
DROPPED = (BAR, "loss", "host", "time left", "waits", "images/s", "step", "state")
"""Columns that are dropped, in this order, if the terminal is too narrow."""
ROOMY = {"state": 15, BAR: 30}
"""Characters that these columns get in this order, if the terminal is wide enough."""


def fitting_columns(rows: Sequence[Mapping[str, str]], width: int, several_hosts: bool) -> dict[str, int]:
    """The columns that fit in `width` characters, with their widths."""
    left_out = {"host": not several_hosts, "waits": not any(row.get("waits") for row in rows)}
    widths = {
        name: max(least, *(_width(row.get(name, "")) for row in rows), 0)
        for name, least in COLUMNS.items()
        if not left_out.get(name)
    }
    for name in DROPPED:
        if _total(widths) <= width:
            break
        widths.pop(name, None)
    for name, most in ROOMY.items():
        if name in widths:
            widths[name] += max(0, min(most - widths[name], width - _total(widths)))
    widths["task"] = min(widths["task"], width)
    return widths


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def header(widths: Mapping[str, int]) -> str:
    """The names of the columns."""
    return _line({name: "" if name == BAR else name for name in widths}, widths)


def line(row: Mapping[str, str], progress: float | None, widths: Mapping[str, int]) -> str:
    """A row in these columns; `progress`, 0..1, is that of the bar."""
    done = "" if progress is None or BAR not in widths else bar(progress, widths[BAR])
    return _line({**row, BAR: done}, widths)


def bar(share: float, width: int) -> str:
    """A line whose first part, 0..1, is thick."""
    done = int(share * width)
    return "\u2501" * done + "\u2500" * (width - done)


def _line(texts: Mapping[str, str], widths: Mapping[str, int]) -> str:
    cells = []
    for name, width in widths.items():
        text = cut(texts[name], width)
        space = " " * (width - _width(text))
        cells.append(space + text if name in NUMBERS else text + space)
    return (" " * GAP).join(cells).rstrip()


def cut(text: str, width: int) -> str:
    """The text in at most `width` characters; its end is an ellipsis if it is longer."""
    if _width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width - 1)) + "\u2026"


def _width(text: str) -> int:
    """Characters of a terminal; some letters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def waits_for(job: JobState, now: float) -> str:
    """`waiting for worker-1 to connect`; empty if there is nothing to say."""
    tasks = job.tasks.values()
    leading = job.leading
    running = job.running
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


class Table(PrefixedLines):
    """Shows all tasks in a table, beside their lines. A subclass draws it."""

    has_table = True

    def __init__(
        self,
        job: Job,
        out: TextIO,
        options: LineOptions | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(out, out, options, now)
        self.state = state_of(job)
        self.several_hosts = len(job.hosts) > 1
        self.drawn_at, self.stale = 0.0, False

    def __enter__(self) -> "Table":
        self.draw(self.now())
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.draw(self.now(), last=True)

    def handle(self, message: Message) -> None:
        """Update the table, or print the tasks' output. Any message lets the seconds in the table count on."""
        super().handle(message)
        now = self.now()
        failed = self.state.failed
        self.stale = self.state.update(message, now) or self.stale
        due = now - self.drawn_at >= (REFRESH_S if self.stale else TICK_S)
        urgent = isinstance(message, Stopped) or self.state.failed != failed
        if (due or urgent) and not is_behind(self.out):
            self.draw(now)

    def draw(self, now: float, last: bool = False) -> None:
        """Draw the table; `last`: the job has ended."""
        self.stale, self.drawn_at = False, now


class LiveTable(Table):
    """Shows it at the bottom of the terminal, and the lines above it."""

    def __init__(
        self, job: Job, out: TextIO, options: LineOptions | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(job, out, options, now)
        from rich.console import Console
        from rich.live import Live

        self.console = Console(file=out, highlight=False)
        self.live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self.drawn: list[str] = []
        """The lines of the last table."""

    def __enter__(self) -> "Table":
        self.live.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.live.stop()

    def show(self, text: str, file: TextIO) -> None:
        """Print text above the table."""
        self.console.print(text, end="", markup=False, emoji=False, soft_wrap=True)

    def draw(self, now: float, last: bool = False) -> None:
        """Draw it over the last one."""
        super().draw(now, last)
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
    waits = state.steps.waits()
    rows = [row_texts(task, now, waits.get(task.name)) for task in tasks]
    widths = fitting_columns(rows, width, several_hosts)
    text = Text(header(widths), style="", no_wrap=True, overflow="crop")
    for task, row in zip(tasks, rows, strict=True):
        text.append(f"\n{plain(line(row, task.progress, widths))}", "red" if task.failed else None)
    notes = [others] if others else []
    if not last:
        status = waits_for(state, now)
        left_s = state.left_s(now)
        if left_s is not None and "time left" not in widths:
            status = f"{status}, about {duration(left_s)} left".removeprefix(", ")
        notes.append(status)
    for note in notes:
        text.append(f"\n{cut(plain(note), max(1, width - len('^C^C')))}")
    return text
