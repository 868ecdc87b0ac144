"""The text about what a bench does at the moment. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tfdist.bench.plan import PlannedRun
from tfdist.launch.agents.launcher_messages import Message
from tfdist.launch.console.job_state import JobState
from tfdist.launch.console.rows import state_text
from tfdist.launch.console.task_state import Activity
from tfdist.launch.text import counted, duration, shortened

_READY = (Activity.READY, Activity.SERVING)


@dataclass
class BenchState:
    """What a bench does. Times are monotonic seconds."""

    incarnation: int = 1
    starting: dict[str, JobState] = field(default_factory=dict)
    """States by arm, until it is parked."""
    started_at: dict[str, float] = field(default_factory=dict)
    """Start times by arm of this incarnation."""
    ready: int = 0
    """Arms of this incarnation that are parked."""
    run: PlannedRun | None = None
    """The turn that is in progress."""
    number: int = 0
    """Number of the last turn that began, counted from 1."""
    total: int = 0
    """Number of turns; 0: unknown."""
    left_s: float | None = None
    """Seconds that the last turn and all after it take, from `turn_at`; None: unknown."""
    turn_at: float = 0.0

    def start(self, arm: str, incarnation: int, now: float) -> None:
        """The processes of an arm start."""
        if incarnation != self.incarnation:
            self.incarnation, self.ready, self.started_at = incarnation, 0, {}
        self.run = None
        self.starting[arm], self.started_at[arm] = JobState(), now

    def update(self, arm: str, message: Message, now: float) -> None:
        """A message of an arm's job; only those of its start are shown."""
        if arm in self.starting:
            self.starting[arm].update(message, now)

    def park(self, arm: str, now: float) -> float | None:
        """The arm waits for its first turn; returns the seconds since its start."""
        self.ready += 1
        self.starting.pop(arm, None)
        return now - self.started_at[arm] if arm in self.started_at else None

    def begin(self, run: PlannedRun, number: int, total: int, left_s: float | None, now: float) -> None:
        """A turn begins: no arm is starting any more."""
        self.starting.clear()
        self.run, self.number, self.total, self.left_s, self.turn_at = run, number, total, left_s, now

    def line(self, width: int, now: float) -> str:
        """What happens now, in a line that is shorter on a narrow terminal and at most cut at its end."""
        candidates = list(self._candidates(now))
        return next((text for text in candidates if len(text) <= width), candidates[-1])

    def _candidates(self, now: float) -> Iterator[str]:
        if self.run is not None:
            yield f"round {self.run.round}, {self.run.arm}"
            yield self.run.arm
            return
        if self.starting:
            details = [f"{arm}{_activity(job, now)}" for arm, job in self.starting.items()]
            yield f"starting {', '.join(details)}; {self.ready} ready"
            yield f"starting {', '.join(details)}"
            yield f"starting {shortened(self.starting, 1)}"
            return
        yield f"warming up {counted(self.ready, 'arm')}" if self.ready else "starting"

    def left_text(self, now: float) -> str:
        """`about 12 min left`; empty if it is unknown, or if the turns take longer than estimated."""
        left_s = 0.0 if self.left_s is None else self.left_s - (now - self.turn_at)
        return f"about {duration(left_s)} left" if left_s >= 1 else ""


def _activity(job: JobState, now: float) -> str:
    """What the task does whose activity started last, in brackets; servers that are ready do nothing more."""
    busy = [task for task in job.tasks.values() if task.activity not in _READY]
    return f" ({state_text(max(busy, key=lambda task: task.since), now)})" if busy else ""
