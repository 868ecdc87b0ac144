"""The progress of a bench: a line for each round, and on a terminal what it does now and a bar with the time left."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from tfdist.bench.plan import PlannedRun
from tfdist.launch.agents.inbox import Message
from tfdist.launch.console.job_state import Activity, JobState
from tfdist.launch.console.lines import can_redraw
from tfdist.launch.console.stream import is_behind
from tfdist.launch.console.table import bar, cut, state_text
from tfdist.launch.text import counted, duration, plain, shortened
from tfdist.models.record import TurnRecord

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

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
            self.incarnation = incarnation
            self.ready = 0
            self.started_at = {}
        self.run = None
        self.starting[arm] = JobState()
        self.started_at[arm] = now

    def update(self, arm: str, message: Message, now: float) -> None:
        """A message of an arm's job; only those of its start are shown."""
        if arm in self.starting:
            self.starting[arm].update(message, now)

    def park(self, arm: str, now: float) -> float:
        """The arm waits for its first turn; returns the seconds since its start."""
        self.ready += 1
        self.starting.pop(arm, None)
        return now - self.started_at[arm]

    def begin(self, run: PlannedRun, number: int, total: int, left_s: float | None, now: float) -> None:
        """A turn begins: no arm is starting any more."""
        self.starting.clear()
        self.run = run
        self.number = number
        self.total = total
        self.left_s = left_s
        self.turn_at = now

    def line(self, width: int, now: float) -> str:
        """What happens now, in a line that is shorter on a narrow terminal and at most cut at its end."""
        if self.run is not None:
            texts = [f"round {self.run.round}, {self.run.arm}", self.run.arm]
        elif self.starting:
            arms = ", ".join(f"{arm}{_activity(job, now)}" for arm, job in self.starting.items())
            texts = [f"starting {each}" for each in (f"{arms}; {self.ready} ready", arms, shortened(self.starting, 1))]
        else:
            texts = [f"warming up {counted(self.ready, 'arm')}" if self.ready else "starting"]
        return next((text for text in texts if len(text) <= width), texts[-1])

    def left_text(self, now: float) -> str:
        """`about 12 min left`; empty if it is unknown, or if the turns take longer than estimated."""
        left_s = 0.0 if self.left_s is None else self.left_s - (now - self.turn_at)
        return f"about {duration(left_s)} left" if left_s >= 1 else ""


def _activity(job: JobState, now: float) -> str:
    """What the task does whose activity started last, in brackets; servers that are ready do nothing more."""
    busy = [task for task in job.tasks.values() if task.activity not in _READY]
    return f" ({state_text(max(busy, key=lambda task: task.since), now)})" if busy else ""


REFRESH_S = 1.0
"""Seconds between two drawings at least, while arms start."""
LEAST_BAR, MOST_BAR = 4, 30
"""Characters of the bar."""


class Progress:
    """Receives the progress of a bench, from one thread; this one shows nothing."""

    def starting(self, arm: str, incarnation: int) -> None:
        """The processes of an arm start; several arms may start at once."""

    def listen(self, arm: str, message: Message) -> None:
        """A message of an arm's job."""

    def parked(self, arm: str) -> None:
        """An arm is started and waits at the barrier."""

    def turn(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:
        """Turn `number` of `total` begins; it and all that follows will take about `left_s` seconds."""

    def done(self, turn: TurnRecord, images_per_s: float) -> None:
        """A turn ended and is saved."""
        self.measured(turn.arm, f"{images_per_s:.1f}")

    def measured(self, arm: str, figure: str) -> None:
        """A turn with this figure ended and is saved."""

    def note(self, text: str) -> None:
        """One line about the bench: an arm died, a group ended, turns are repeated."""


@dataclass
class ProgressLines(Progress):
    """A line for each round and each start, for logs."""

    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    state: BenchState = field(default_factory=BenchState)
    unit: str = "images/s"
    figures: dict[str, str] = field(default_factory=dict)
    """Figures of each arm in the current round, in this unit."""

    def starting(self, arm: str, incarnation: int) -> None:  # noqa: D102
        self.end_round()
        self.state.start(arm, incarnation, self.now())

    def parked(self, arm: str) -> None:  # noqa: D102
        seconds = self.state.park(arm, self.now())
        self.say(f"start {self.state.incarnation}: {arm} is ready after {duration(seconds)}")

    def turn(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:  # noqa: D102
        if self.state.run is not None and self.state.run.round != run.round:
            self.end_round()
        self.state.begin(run, number, total, left_s, self.now())

    def measured(self, arm: str, figure: str) -> None:  # noqa: D102
        self.figures[arm] = figure

    def note(self, text: str) -> None:  # noqa: D102
        self.end_round()
        self.say(plain(text))

    def end_round(self) -> None:
        """Print the figures of the current round, if there are any."""
        if self.figures and self.state.run is not None:
            figures = ", ".join(f"{arm} {figure}" for arm, figure in self.figures.items())
            left = self.state.left_text(self.now())
            turns = f"{self.state.number} of {counted(self.state.total, 'turn')}{left and f', {left}'}"
            self.say(f"round {self.state.run.round} ({turns}): {figures} {self.unit}")
        self.figures.clear()


@dataclass
class LiveProgress(Progress):
    """Two lines at the bottom of the terminal; notes scroll above them.

    During a turn nothing is drawn, so that drawing takes no time from the training.
    """

    live: "Live"
    out: TextIO
    now: Callable[[], float] = time.monotonic
    state: BenchState = field(default_factory=BenchState)
    drawn_at: float = 0.0

    def starting(self, arm: str, incarnation: int) -> None:  # noqa: D102
        self.state.start(arm, incarnation, self.now())
        self._draw()

    def listen(self, arm: str, message: Message) -> None:
        """Note the message. The display counts seconds, because the agents send heartbeats."""
        now = self.now()
        self.state.update(arm, message, now)
        if self.state.starting and now - self.drawn_at >= REFRESH_S and not is_behind(self.out):
            self._draw()

    def parked(self, arm: str) -> None:  # noqa: D102
        self.state.park(arm, self.now())
        self._draw()

    def turn(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:  # noqa: D102
        self.state.begin(run, number, total, left_s, self.now())
        self._draw()

    def note(self, text: str) -> None:  # noqa: D102
        self.live.console.print(plain(text), markup=False, emoji=False, highlight=False, soft_wrap=True)

    def _draw(self) -> None:
        self.drawn_at = self.now()
        self.live.update(picture(self.state, self.live.console.width, self.drawn_at), refresh=True)


def picture(state: BenchState, width: int, now: float) -> "Text":
    """What happens now, and below it the whole bench; in that line there is room for the `^C` of Ctrl-C."""
    from rich.text import Text

    number = f"turn {state.number}/{state.total}" if state.total else "no turn yet"
    left = state.left_text(now)
    room = len("^C^C")
    size = min(MOST_BAR, width - len(f"{number}  {left}") - room)
    share = max(0, state.number - 1) / state.total if state.total else 0.0
    done = [bar(share, size)] if size >= LEAST_BAR else []
    lines = cut(state.line(width, now), width), cut(" ".join([number, *done, left]).rstrip(), max(1, width - room))
    return Text("\n".join(lines), no_wrap=True, overflow="crop")


@contextmanager
def progress_on(stream: TextIO, quiet: bool, unit: str = "images/s") -> Iterator[Progress]:
    """A bar on a terminal, lines with figures in `unit` elsewhere, nothing if quiet."""
    if quiet:
        yield Progress()
    elif not can_redraw(stream):
        lines = ProgressLines(lambda text: print(text, file=stream, flush=True), unit=unit)
        try:
            yield lines
        finally:
            lines.end_round()
    else:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=stream)
        with Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        ) as live:
            yield LiveProgress(live, stream)
