"""The clock of a training, read at the edges of windows only, with what process and host use. No TensorFlow."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tfdist.launch import events
from tfdist.launch.agent_program.system import host_usage, resident_bytes
from tfdist.launch.events import Phase
from tfdist.models.record import GpuReading, Window, WindowUsage
from tfdist.models.training.readings import gpu_readings

Reading = WindowUsage
"""Counters at one moment, energy since the driver was loaded; the differences of two are a window's usage."""


def read_usage() -> Reading:
    """The counters now."""
    host = host_usage()
    return Reading(time.process_time(), host["busy_s"], host["steal_s"], resident_bytes(os.getpid()), gpu_readings())


def usage_between(start: WindowUsage, end: Reading) -> WindowUsage:
    """The usage of a window, from the readings at its edges."""
    return WindowUsage(
        cpu_s=end.cpu_s - start.cpu_s,
        busy_s=end.busy_s - start.busy_s,
        steal_s=end.steal_s - start.steal_s,
        resident_bytes=end.resident_bytes,
        gpus=tuple(replace(gpu, energy_j=_energy_j(gpu, start.gpus)) for gpu in end.gpus),
    )


def _energy_j(end: GpuReading, gpus: Sequence[GpuReading]) -> float | None:
    """The energy of a GPU since its reading among `gpus`; None if there is none."""
    start = next((gpu.energy_j for gpu in gpus if gpu.index == end.index), None)
    return None if start is None or end.energy_j is None else end.energy_j - start


MOST_WINDOWS = 256
"""Windows of a record. It is one event, and an agent drops events of more than 1 MiB or 50,000 values."""


def joined(first: Window, second: Window) -> Window:
    """Two windows of a task, one after the other, as one; usage only if both have it, with the readings at the end."""
    window: Window = _sums(first, second, "steps", "examples", "elapsed_s", "epochs", "between_s", "between_cpu_s")
    if first.usage is None or second.usage is None:
        return replace(window, usage=None)
    usage = _sums(first.usage, second.usage, "cpu_s", "busy_s", "steal_s")
    gpus = tuple(_sums(*pair, "energy_j") for pair in zip(first.usage.gpus, usage.gpus, strict=False))
    return replace(window, usage=replace(usage, gpus=gpus))


def _sums(first: Any, second: Any, *names: str) -> Any:
    pairs = {name: (getattr(first, name), getattr(second, name)) for name in names}
    return replace(second, **{name: None if None in pair else sum(pair) for name, pair in pairs.items()})


@dataclass
class WindowLog:
    """Call `open` before the first step of a row of windows, and `close` after the device has finished each window.

    A window starts where the last one ended, unless `open` is called in between. Equally many neighbours are joined as
    soon as there are `MOST_WINDOWS`: all tasks have the same ones.
    """

    share: float = 1.0
    """The part of the job's examples, 0..1, that this rank counts."""
    total: int | None = None
    """Number of steps of the training, for the display; None: unknown."""
    clock: Callable[[], float] = time.perf_counter
    read: Callable[[], Reading] = read_usage
    windows: list[Window] = field(default_factory=list)
    """Those closed since the last `take`, at most `MOST_WINDOWS`."""
    opened_at: float = 0.0
    """The clock at the start of the first window; 0.0 before it."""
    first_step_at: float = 0.0
    """The clock at the end of the first step, tracing included; 0.0 before it."""
    steps: int = 0
    """Steps of all windows so far."""
    at_edge: Callable[[int], bool] | None = None
    """Called with `steps` after each window, outside of them; returns whether it took time."""
    quiet: bool = False
    """Report no steps to the launcher: nothing should happen beside a turn."""
    more: Callable[[int, int], dict[str, Any]] | None = None
    """Called at the end of a window with `steps` and its number of steps; returns what else is reported of it."""
    observed: dict[str, Any] = field(default_factory=dict)
    """JSON about the turn besides its windows, by name, not yet sent; see TurnRecord.observed."""
    _edge: float = 0.0
    _before: WindowUsage | None = None
    _paused: tuple[float, Reading] | None = None
    _between: dict[str, Any] = field(default_factory=dict)
    _closed: int = 0
    _joined: int = 1

    def open(self) -> None:
        """Start a window now."""
        if not self.opened_at:
            events.emit("phase", phase=Phase.TRACING)
        self._paused = None
        self._between = {}
        self._before = self.read()
        self._edge = self.clock()
        self.opened_at = self.opened_at or self._edge

    def pause(self, at: float | None = None) -> None:
        """End an epoch, now or at that time of the clock: what follows until `resume` belongs to no window.

        Later calls do nothing.
        """
        if self._before is not None and self._paused is None:
            self._paused = self.clock() if at is None else at, self.read()

    def resume(self) -> None:
        """Continue the window that `pause` interrupted, if it did."""
        if self._before is None or self._paused is None:
            return
        (paused_at, reading), self._paused = self._paused, None
        now = self.read()
        self._before = usage_between(usage_between(self._before, reading), now)  # now, less what was used until then
        seconds = self.clock() - paused_at
        self._edge += seconds
        more = {"epochs": 1, "between_s": seconds, "between_cpu_s": now.cpu_s - reading.cpu_s}
        self._between = {name: self._between.get(name, 0) + value for name, value in more.items()}

    def first_step(self) -> None:
        """Note the time of the first step's end; later calls do nothing."""
        self.first_step_at = self.first_step_at or self.clock()

    def close(self, steps: int, examples: int, loss: float | None) -> None:
        """End a window of `steps` steps and `examples` examples of this rank, and start the next one."""
        if self._before is None:
            raise RuntimeError("close() without open()")
        now = self.clock()
        reading = self.read()
        elapsed = now - self._edge
        usage = usage_between(self._before, reading)
        self._add(Window(steps, examples, elapsed, loss, usage, **self._between))
        self._edge = now
        self._before = reading
        self._between = {}
        self.steps += steps
        if not self.quiet:
            rate = examples / self.share / elapsed
            more = {} if self.more is None else {"step_ms": 1000 * elapsed / steps, **self.more(self.steps, steps)}
            if reading.gpus:
                more["gpus"] = [asdict(gpu) for gpu in reading.gpus]
            events.emit("step", step=self.steps, steps=self.total, images_per_s=rate, loss=loss, **more)
        if self.at_edge is not None and self.at_edge(self.steps):
            self._before, self._edge = self.read(), self.clock()

    def _add(self, window: Window) -> None:
        if self._closed % self._joined:
            self.windows[-1] = joined(self.windows[-1], window)
        else:
            self.windows.append(window)
        self._closed += 1
        if self._closed == MOST_WINDOWS * self._joined:
            self.windows = [joined(*pair) for pair in zip(self.windows[::2], self.windows[1::2], strict=True)]
            self._joined *= 2

    def take(self) -> tuple[Window, ...]:
        """The windows closed since the last call."""
        taken = tuple(self.windows)
        self.windows = []
        self._closed = 0
        self._joined = 1
        return taken


SAMPLES = 10
"""Maximum number of steps of a window whose times are reported while a job trains."""


def sampled(step: int, count: int) -> tuple[int, range]:
    """Which of the `count` steps up to `step` are reported, counted from 1: all multiples of a power of two.

    So all workers report the same ones, however their windows are cut.

    Returns:
        the power of two, and the numbers.
    """
    every = 1 << ((count - 1) // SAMPLES).bit_length()
    return every, range(step - step % every, step - count, -every)[::-1]


def step_s(windows: tuple[Window, ...]) -> float:
    """Seconds of one step, over all these windows. There must be one."""
    return sum(window.elapsed_s for window in windows) / max(1, sum(window.steps for window in windows))


RunSteps = Callable[[int], float | None]
"""Trains a number of steps, waits until they are done, and returns the loss of the last one."""


def train_windows(
    run: RunSteps, step_examples: int, sizes: Sequence[int], log: WindowLog, before: int, after: int
) -> None:
    """Train windows, as `pace.Loop`."""
    run(before)
    log.open()
    for size in sizes:
        loss = run(size)
        log.first_step()
        log.close(size, size * step_examples, loss)
    run(after)
