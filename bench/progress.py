"""The progress of a bench: a line for each run, and on a terminal the current run and a bar with the time left."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from tfdist.bench.current_run import CurrentRun
from tfdist.bench.plan import PlannedRun
from tfdist.launch.agents.launcher_messages import Message
from tfdist.launch.console.columns import bar, cut
from tfdist.launch.console.stream import is_behind
from tfdist.launch.console.terminal import can_redraw
from tfdist.launch.text import duration, labelled
from tfdist.models.record import Record, RecordStatus
from tfdist.models.throughput import throughput

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

REFRESH_S = 1.0
"""At least this long between two drawings: drawing must not take time from the training."""
LEAST_BAR, MOST_BAR = 4, 30
"""Characters of the bar."""


class Progress:
    """Receives the progress of a bench; this one shows nothing."""

    def start(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:
        """Run `number` of `total` starts; it and the later ones will take about `left_s` seconds."""

    def listen(self, message: Message) -> None:
        """A message of the run."""

    def end(self, record: Record) -> None:
        """The run ended with this record."""


@dataclass
class ProgressLines(Progress):
    """Two lines per run, for logs."""

    say: Callable[[str], None]

    def start(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:  # noqa: D102
        left = "" if left_s is None else f", about {duration(left_s)} left"
        self.say(f"[{number}/{total}] {run.arm}, round {run.round}{left}")

    def end(self, record: Record) -> None:  # noqa: D102
        self.say(f"    {_result(record)}")


@dataclass
class LiveProgress(Progress):
    """Two lines at the bottom of the terminal; results scroll above them."""

    live: "Live"
    out: TextIO
    now: Callable[[], float] = time.monotonic
    current: CurrentRun | None = None
    drawn_at: float = 0.0

    def start(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:  # noqa: D102
        self.current = CurrentRun(run, number, total, left_s, self.now())
        self._draw()

    def listen(self, message: Message) -> None:
        """Note the message; the agents' heartbeats let the display count on."""
        now = self.now()
        if self.current is not None:
            self.current.job.update(message, now)
            if now - self.drawn_at >= REFRESH_S and not is_behind(self.out):
                self._draw()

    def end(self, record: Record) -> None:  # noqa: D102
        text = f"{record.arm}, round {record.round}: {_result(record)}"
        self.live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> None:
        if self.current is not None:
            self.drawn_at = self.now()
            self.live.update(picture(self.current, self.live.console.width, self.drawn_at), refresh=True)


def picture(current: CurrentRun, width: int, now: float) -> "Text":
    """The current run, and below it the whole bench; in that line there is room for the `^C` of Ctrl-C."""
    from rich.text import Text

    number, left, room = f"run {current.number}/{current.total}", current.left_text(now), len("^C^C")
    size = min(MOST_BAR, width - len(f"{number}  {left}") - room)
    done = [bar((current.number - 1) / current.total, size)] if size >= LEAST_BAR else []
    lines = cut(current.line(width, now), width), cut(" ".join([number, *done, left]), max(1, width - room))
    return Text("\n".join(lines), no_wrap=True, overflow="crop")


@contextmanager
def progress_on(stream: TextIO, quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal, lines elsewhere, nothing if quiet."""
    if quiet:
        yield Progress()
    elif not can_redraw(stream):
        yield ProgressLines(lambda text: print(text, file=stream, flush=True))
    else:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=stream)
        with Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        ) as live:
            yield LiveProgress(live, stream)


def _result(record: Record) -> str:
    if record.status != RecordStatus.OK:
        return labelled(record.status, record.reason)
    return f"{throughput(record):.1f} images/s (whole job), {duration(record.wall_s)}"
