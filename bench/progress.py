"""The progress of a bench: a line for each run, and on a terminal a bar with the time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from tfdist.bench.plan import PlannedRun
from tfdist.launch.agents.messages import Event, Message
from tfdist.launch.text import labelled
from tfdist.models.record import Record, RecordStatus
from tfdist.models.throughput import throughput

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """Receives the progress of a bench; this one shows nothing."""

    def start(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:
        """Run `number` of `total` starts; it and the later ones will take about `left_s` seconds."""

    def listen(self, message: Message) -> None:
        """A message of one of the run's tasks."""

    def end(self, record: Record) -> None:
        """The run ended with this record."""


@dataclass
class ProgressLines(Progress):
    """Two lines per run, for logs."""

    say: Callable[[str], None]

    def start(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:  # noqa: D102
        self.say(f"[{number}/{total}] {run.arm}, round {run.round}{_left(left_s)}")

    def end(self, record: Record) -> None:  # noqa: D102
        self.say(f"    {_result(record)}")


@dataclass
class LiveBar(Progress):
    """A bar at the bottom of the terminal; results scroll above it."""

    bar: "Bar"

    def start(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:  # noqa: D102
        if not self.bar.tasks:
            self.bar.add_task("", total=total, now="")
        description = f"{run.arm}, round {run.round}{_left(left_s)}"
        self.bar.update(self.bar.tasks[0].id, description=description, now="starting")

    def listen(self, message: Message) -> None:
        """Show the speed of the task that sent the message."""
        if isinstance(message, Event) and message.event.get("images_per_s") is not None:
            step, rate = message.event.get("step"), message.event["images_per_s"]
            self.bar.update(self.bar.tasks[0].id, now=f"{message.task} step {step}, {rate:.0f} images/s")

    def end(self, record: Record) -> None:  # noqa: D102
        self.bar.update(self.bar.tasks[0].id, advance=1, description="", now="")
        self.bar.console.print(f"{record.arm}, round {record.round}: {_result(record)}", markup=False, highlight=False)


@contextmanager
def progress_on(stream: TextIO, quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal, lines elsewhere, nothing if quiet."""
    if quiet:
        yield Progress()
    elif not stream.isatty():
        yield ProgressLines(lambda text: print(text, file=stream, flush=True))
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        texts = ("{task.description}", "{task.fields[now]}")
        columns = (BarColumn(16), MofNCompleteColumn(), *(TextColumn(text, markup=False) for text in texts))
        # once a second: drawing must not take time from the training
        with Bar(*columns, console=Console(file=stream), transient=True, refresh_per_second=1) as bar:
            yield LiveBar(bar)


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f", about {duration(seconds)} left"


def _result(record: Record) -> str:
    if record.status != RecordStatus.OK:
        return labelled(record.status, record.reason)
    return f"{throughput(record):.1f} images/s (whole job), {duration(record.wall_s)}"


def duration(seconds: float) -> str:
    """`48 s`, `12 min` or `1 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
