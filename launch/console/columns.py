"""The live table: its rows, from the state of a job, which columns fit, and a row as a line of text. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdist.launch.console.job_state import TIMELESS, Activity, JobState, TaskState, number_text, step_text
from tfdist.launch.text import duration


@dataclass(frozen=True)
class TaskRow:
    """One task in the table."""

    texts: Mapping[str, str]
    """Texts by name of the column; the bar has none."""
    progress: float | None
    """The share of the steps that are done, 0..1; None: unknown."""
    failed: bool


def task_row(task: TaskState, now: float) -> TaskRow:
    """What the table shows of a task."""
    left_s = task.left_s(now)
    texts = {
        "task": task.name,
        "host": task.host,
        "state": state_text(task, now),
        "step": step_text(task.step, task.steps),
        "images/s": number_text(task.images_per_s, ",.1f"),
        "loss": number_text(task.loss, ".4f"),
        "time left": "" if left_s is None else duration(left_s),
    }
    progress = min(1.0, task.step / task.steps) if task.step is not None and task.steps else None
    return TaskRow(texts, progress, task.failed)


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
    counts = ", ".join(f"{number} {activity}" for activity, number in others.most_common())
    return [tasks[index] for index in sorted(wanted)], f"{others.total()} more: {counts}" if others else ""


GAP = 2
"""Characters between columns."""
BAR = "bar"
COLUMNS = {"task": 8, "host": 4, "state": 11, "step": 7, BAR: 8, "images/s": 8, "loss": 6, "time left": 9}
"""The smallest number of characters of each column, so that columns do not come and go while numbers grow."""
NUMBERS = frozenset(["step", "images/s", "loss", "time left"])
"""Columns that are right-aligned."""
DROPPED = (BAR, "loss", "host", "time left", "images/s", "step", "state")
"""Columns that are dropped, in this order, if the terminal is too narrow."""
ROOMY = {"state": 15, BAR: 30}
"""Characters that these columns get in this order, if the terminal is wide enough."""


def fitting_columns(rows: Sequence[TaskRow], width: int, several_hosts: bool) -> dict[str, int]:
    """The columns that fit in `width` characters, with their widths."""
    widths = {
        name: max(least, *(_width(row.texts.get(name, "")) for row in rows), 0)
        for name, least in COLUMNS.items()
        if name != "host" or several_hosts
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


def line(row: TaskRow, widths: Mapping[str, int]) -> str:
    """A row in these columns."""
    progress = "" if row.progress is None or BAR not in widths else bar(row.progress, widths[BAR])
    return _line({**row.texts, BAR: progress}, widths)


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
