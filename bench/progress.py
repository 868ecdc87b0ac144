"""How far a bench is: a line for each run, and on a terminal a bar with the time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from tfdist.bench.plan import PlannedRun
from tfdist.launch.agents.messages import Event, Message
from tfdist.models.record import Record
from tfdist.models.throughput import throughput

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class NoProgress:
    """Tells nobody."""

    def begin(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:
        """A run begins."""

    def listen(self, message: Message) -> None:
        """A task says something."""

    def end(self, record: Record) -> None:
        """A run is over."""


@dataclass
class ProgressLines(NoProgress):
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
class LiveBar(NoProgress):
    """A bar at the bottom of the terminal; what is measured scrolls by above it."""

    bar: "Bar"

    def begin(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:
        """A run begins."""
        if not self.bar.tasks:
            self.bar.add_task("", total=total, left="", now="")
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


@contextmanager
def progress_on(stream: TextIO, quiet: bool) -> Iterator[NoProgress]:
    """A bar on a terminal, lines elsewhere, nothing if quiet."""
    if quiet:
        yield NoProgress()
    elif not stream.isatty():
        yield ProgressLines(lambda text: _write_line(stream, text))
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        texts = ("{task.description}", "{task.fields[left]}", "{task.fields[now]}")
        columns = (BarColumn(16), MofNCompleteColumn(), *(TextColumn(text, markup=False) for text in texts))
        # once a second: drawing must not take time from what is measured
        with Progress(*columns, console=Console(file=stream), transient=True, refresh_per_second=1) as bar:
            yield LiveBar(bar)


def _write_line(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()


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
