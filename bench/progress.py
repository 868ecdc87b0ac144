"""How far a bench is: a line for each run, and on a terminal a bar with the time left."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdist.bench.plan import PlannedRun
from tfdist.bench.record import Record
from tfdist.bench.statistics import throughput
from tfdist.launch.messages import Event, Message

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Silence:
    """Tells nobody."""

    def begin(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:
        """A run begins."""

    def listen(self, message: Message) -> None:
        """A task says something."""

    def end(self, record: Record) -> None:
        """A run is over."""


@dataclass
class Lines(Silence):
    """Two lines a run, for logs."""

    say: Callable[[str], None]

    def begin(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:
        """A run begins."""
        left = f", {duration(left_s)} left" if left_s is not None else ""
        self.say(f"[{number}/{total}] {run.arm}, round {run.round}{left}")

    def end(self, record: Record) -> None:
        """A run is over."""
        self.say(f"    {result(record)}")


@dataclass
class LiveBar(Silence):
    """A bar at the bottom of the terminal; what is measured scrolls by above it."""

    bar: "Bar"

    def begin(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:
        """A run begins."""
        if not self.bar.tasks:
            self.bar.add_task("", total=total)
        left = duration(left_s) + " left" if left_s is not None else ""
        self.bar.update(self.bar.tasks[0].id, description=f"{run.arm}, round {run.round}", left=left, now="starting")

    def listen(self, message: Message) -> None:
        """Show the pace of whichever task spoke last."""
        if isinstance(message, Event) and message.event.get("images_per_s") is not None:
            step, pace = message.event.get("step"), message.event["images_per_s"]
            self.bar.update(self.bar.tasks[0].id, now=f"{message.task} step {step}, {pace:.0f} images/s")

    def end(self, record: Record) -> None:
        """A run is over."""
        self.bar.update(self.bar.tasks[0].id, advance=1, now="", left="")
        self.bar.console.print(f"{record.arm}, round {record.round}: {result(record)}", markup=False, highlight=False)


def result(record: Record) -> str:
    """What came of a run, in a line."""
    if record.status != "ok":
        return f"{record.status}: {record.reason}"
    return f"{throughput(record):.1f} images/s (whole job), {duration(record.wall_s)}"


def duration(seconds: float) -> str:
    """`48 s`, `12 min` or `1 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
