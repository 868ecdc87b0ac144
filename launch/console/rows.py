"""The rows of the live table, from the state of a job. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tfdist.launch.console.job_state import JobState
from tfdist.launch.console.step_values import number_text, step_text
from tfdist.launch.console.task_state import TIMELESS, Activity, TaskState
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
    order = sorted(range(len(tasks)), key=lambda index: (not tasks[index].failed, index > 0, _slowness(tasks[index])))
    wanted = set(order[: max(1, most)])
    others = Counter(str(task.activity) for index, task in enumerate(tasks) if index not in wanted)
    counts = ", ".join(f"{number} {activity}" for activity, number in others.most_common())
    return [tasks[index] for index in sorted(wanted)], f"{others.total()} more: {counts}" if others else ""


def _slowness(task: TaskState) -> tuple[bool, int]:
    return task.ended or task.activity == Activity.SERVING, task.step or 0
