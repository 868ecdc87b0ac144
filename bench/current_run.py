"""The text about the run of a bench that is in progress. Pure."""

from dataclasses import dataclass, field

from tfdist.bench.plan import PlannedRun
from tfdist.launch.console.job_state import JobState
from tfdist.launch.console.rows import state_text
from tfdist.launch.console.step_values import number_text, step_text
from tfdist.launch.console.task_state import Activity, TaskState
from tfdist.launch.text import duration


@dataclass
class CurrentRun:
    """The run that is in progress. Times are monotonic seconds."""

    run: PlannedRun
    number: int
    """Counted from 1."""
    total: int
    left_s: float | None
    """Seconds that it and the later runs take, from its start; None: unknown."""
    started_at: float
    job: JobState = field(default_factory=JobState)

    @property
    def name(self) -> str:
        """Arm and round."""
        return f"{self.run.arm}, round {self.run.round}"

    def details(self, now: float) -> list[str]:
        """Step and speed of the slowest task; before the first step, the phase that started last."""
        stepping = [task for task in self.job.tasks.values() if task.step is not None]
        if stepping:
            slowest = min(stepping, key=lambda task: task.step or 0)
            rate = number_text(slowest.images_per_s, ",.0f")
            phase = [] if slowest.activity == Activity.TRAINING else [state_text(slowest, now)]
            return [f"step {step_text(slowest.step, slowest.steps)}", *([f"{rate} images/s"] if rate else []), *phase]
        return [state_text(task, now) for task in _latest(self.job)] or ["starting"]

    def line(self, width: int, now: float) -> str:
        """What the run does, in a line that is shorter on a narrow terminal and at most cut at its end."""
        first, *more = self.details(now)
        candidates = [f"{self.name}: {', '.join((first, *more))}", f"{self.name}: {first}", f"{self.run.arm}: {first}"]
        return next((text for text in candidates if len(text) <= width), candidates[-1])

    def left_text(self, now: float) -> str:
        """`about 12 min left`; empty if it is unknown, or if the runs take longer than estimated."""
        left_s = 0.0 if self.left_s is None else self.left_s - (now - self.started_at)
        return f"about {duration(left_s)} left" if left_s > 0 else ""


def _latest(job: JobState) -> list[TaskState]:
    """The task whose activity started last; servers that are ready do nothing more."""
    busy = [task for task in job.tasks.values() if task.activity != Activity.READY]
    return [max(busy, key=lambda task: task.since)] if busy else []
