"""Which worker holds the others up, from the `step` events of a job, and why. No I/O: tests replay events.

The workers of a synchronous job end each step together. Each reports of some steps how long it needed until its own
gradients were ready (`own_ms`) or, if its program is the user's, until its batch was there (`input_ms`). The one that
needs most is the last one, and the others wait for the difference. Asynchronous workers wait for nobody: their chief
reports how many updates each has made, and how stale they were.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import median
from typing import Any

STRETCH_S = 5.0
SPAN_S = 30.0
"""A worker is judged by the last steps of this time, or by as many as LEAST_STEPS need."""
LEAST_S = 20.0
"""Nobody is named before the steps of this time are known."""
LEAST_STEPS = 20
CAUSED, WAITS = 0.8, 0.15
"""A worker is named if of all time that workers wait, this share is for it, and if that is this share of their time.
It need not be the last one in each step: one that is throttled computes some as fast as the others. The cores of one
virtual machine differed by 10 to 11 % for minutes, without a cause that shows (`lab/faults/slow_workers.py`)."""
OFTEN = 2 / 3
"""And if it is the main cause in this share of the stretches: not for one long pause."""
KEPT = 0.75
"""It stays named above this part of these shares, so that it does not come and go."""
FEW = 2 / 3
"""An asynchronous worker is named that makes fewer updates than this part of the others' median."""
MOST_OPEN = 256
"""Steps that some workers have reported and others have not yet."""


@dataclass(frozen=True)
class Straggler:
    """A worker that holds the others up."""

    task: str
    last: float = 0.0
    """The share of the steps, 0..1, in which it is the last one."""
    waits: float = 0.0
    """The share of a step's time that the others wait for it, on average."""
    step_ms: float = 0.0
    own_ms: float = 0.0
    """Its own time in a step; of a user's program, that for its batch."""
    others_ms: float = 0.0
    """Own time of the others, the median."""
    input_ms: float | None = None
    """The part of `own_ms` in which it waits for its batch; None: unknown."""
    others_input_ms: float | None = None
    updates: float | None = None
    """Asynchronous: its updates, as a part of the others' median."""
    staleness: float | None = None
    """Updates that others made while it computed one, on average."""

    @property
    def sentence(self) -> str:
        """What it does to the others, after its name."""
        if self.updates is not None:
            stale = f"each is {self.staleness or 0:.1f} updates stale"
            return f"makes {self.updates:.0%} as many updates as the others; {stale}"
        return f"is last in {self.last:.0%} of the steps: the others wait {self.waits:.0%} of their time"

    @property
    def input_text(self) -> str:
        """`its input takes 31 of 48 ms`, if that is most of what it needs more than the others; else empty."""
        if self.input_ms is None or self.others_input_ms is None:
            return ""
        more = self.input_ms - self.others_input_ms
        if more < 0.5 * (self.own_ms - self.others_ms):
            return ""
        return f"its input takes {self.input_ms:.0f} of {self.step_ms:.0f} ms"


@dataclass(frozen=True)
class StragglerReport:
    """A time in which a worker held the others up, as saved in outcome.json. Times are seconds since 1970."""

    task: str
    host: str
    since: float
    until: float
    sentence: str
    """The task, what it did to the others, and why, as seen most recently."""
    figures: Mapping[str, float]
    """Those of `Straggler` that are known."""


def report_of(slow: Straggler, host: str, cause: str, since: float, until: float) -> StragglerReport:
    """The report about a worker on this host; `cause` is in words."""
    values = {name: value for name, value in asdict(slow).items() if isinstance(value, float)}
    figures = {name: round(value, 4) for name, value in values.items() if value}
    return StragglerReport(slow.task, host, since, until, f"{slow.task} on {host} {slow.sentence}; {cause}", figures)


_Sums = partial(defaultdict[str, float], float)
"""A sum for each task."""


@dataclass
class _Stretch:
    """Sums over the steps of a few seconds."""

    start: float
    steps: int = 0
    step_ms: float = 0.0
    last: Counter[str] = field(default_factory=Counter)
    """Steps in which each task was the last one."""
    own_ms: dict[str, float] = field(default_factory=_Sums)
    input_ms: dict[str, float] = field(default_factory=_Sums)
    waits_ms: dict[str, float] = field(default_factory=_Sums)
    """Time that each task waits."""
    caused_ms: dict[str, float] = field(default_factory=_Sums)
    """Time that all others together wait for it, in the steps in which it is the last one."""
    updates: dict[str, float] = field(default_factory=_Sums)
    stale: dict[str, float] = field(default_factory=_Sums)
    """Staleness of the updates."""

    def add(self, other: "_Stretch") -> None:
        """Add the sums of another one."""
        self.steps, self.step_ms = self.steps + other.steps, self.step_ms + other.step_ms
        for name in ("last", "own_ms", "input_ms", "waits_ms", "caused_ms", "updates", "stale"):
            for task, value in getattr(other, name).items():
                getattr(self, name)[task] += value

    def share(self, task: str) -> float:
        """The part, 0..1, of all waiting that is for this task."""
        total = sum(self.caused_ms.values())
        return self.caused_ms[task] / total if total else 0.0

    def waits_for(self, task: str) -> float:
        """The share of their time, 0..1, that the others wait for this task, on average."""
        others = len(self.waits_ms) - 1
        if others <= 0 or not self.step_ms:
            return 0.0
        return min(1.0, self.caused_ms[task] / others / self.step_ms)


def _total(stretches: Collection[_Stretch]) -> _Stretch:
    total = _Stretch(min((stretch.start for stretch in stretches), default=0.0))
    for stretch in stretches:
        total.add(stretch)
    return total


@dataclass
class WorkerSteps:
    """The steps of these workers, in the order of the cluster."""

    tasks: Sequence[str]
    workers: Sequence[str] = ()
    """The workers whose updates the chief counts; empty if the job is synchronous."""
    _open: dict[int, dict[str, tuple[float, float | None, float]]] = field(default_factory=dict)
    """Own time, input and the whole step, in milliseconds, by step and task."""
    _stretches: deque[_Stretch] = field(default_factory=deque)
    now: float = 0.0
    """Time of the last event."""
    _known: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._known = frozenset(self.tasks)

    def forget(self) -> None:
        """Judge by the steps that follow."""
        self._open.clear()
        self._stretches.clear()

    def note(self, task: str, event: Mapping[str, Any], now: float) -> None:
        """Take note of a `step` event of a task; it may hold anything. `now`: seconds, by any clock."""
        self.now = now
        if len(self.tasks) > 1 and task in self._known:
            self._note_times(task, event)
        if len(self.workers) > 1:
            self._note_updates(event)

    def _note_times(self, task: str, event: Mapping[str, Any]) -> None:
        step = event.get("step")
        every = event.get("every")
        step_ms = _number(event.get("step_ms"))
        waited, own = _numbers(event.get("input_ms")), _numbers(event.get("own_ms"))
        if type(step) is not int or type(every) is not int or every < 1 or step < 0 or not step_ms:
            return
        if not own and gpus_of(event) and sum(waited) < len(waited) * step_ms / 2:  # the GPU computes meanwhile
            waited = [0.0] * len(waited)
        times, has_input = own or waited, bool(waited) and len(own) in (0, len(waited))
        first = step - step % every - every * (len(times) - 1)
        for index, own_ms in list(enumerate(times))[-MOST_OPEN:]:
            row = self._open.setdefault(first + index * every, {})
            row[task] = own_ms, waited[index] if has_input else None, step_ms
            if len(row) == len(self.tasks):
                self._close(self._open.pop(first + index * every))
        while len(self._open) > MOST_OPEN:
            del self._open[min(self._open)]

    def _close(self, row: Mapping[str, tuple[float, float | None, float]]) -> None:
        stretch = self._stretch()
        longest = max(row, key=lambda task: row[task][0])
        stretch.steps += 1
        stretch.step_ms += max(step_ms for _, _, step_ms in row.values())
        stretch.last[longest] += 1
        for task, (own_ms, input_ms, _) in row.items():
            stretch.own_ms[task] += own_ms
            stretch.waits_ms[task] += row[longest][0] - own_ms
            stretch.caused_ms[longest] += row[longest][0] - own_ms
            if input_ms is not None:
                stretch.input_ms[task] += input_ms

    def _note_updates(self, event: Mapping[str, Any]) -> None:
        updates, stale = _numbers(event.get("updates")), _numbers(event.get("staleness"))
        if len(updates) != len(self.workers) or len(stale) != len(self.workers):
            return
        stretch = self._stretch()
        stretch.steps += int(sum(updates))
        for task, number, mean in zip(self.workers, updates, stale, strict=True):
            stretch.updates[task] += number
            stretch.stale[task] += number * mean

    def _stretch(self) -> _Stretch:
        """The present one. Those that are not needed any more are dropped."""
        if not self._stretches or self.now - self._stretches[-1].start >= STRETCH_S:
            self._stretches.append(_Stretch(self.now))
        while len(self._stretches) > 1 and self.now - self._stretches[1].start >= SPAN_S:
            if sum(stretch.steps for stretch in self._stretches) - self._stretches[0].steps < LEAST_STEPS:
                break
            self._stretches.popleft()
        return self._stretches[-1]

    def _sums(self) -> _Stretch | None:
        """The sums over all stretches; None if their steps are too few to judge by."""
        total = _total(self._stretches)
        return total if total.steps >= LEAST_STEPS and self.now - total.start >= LEAST_S else None

    def known(self, now: float) -> bool:
        """Whether its steps are enough to judge by, and recent."""
        return self._sums() is not None and now - self.now < SPAN_S

    def still(self, slow: Straggler) -> bool:
        """Whether it is the slow one in the last steps, too, and not only in the mean."""
        last = _total(list(self._stretches)[-2:])
        if slow.updates is not None:
            return last.updates[slow.task] == min(last.updates[worker] for worker in self.workers)
        return last.share(slow.task) >= KEPT * CAUSED and last.waits_for(slow.task) >= KEPT * WAITS

    def waits(self) -> dict[str, float]:
        """The share of its time, 0..1, that each worker waits for the last one; empty while it is unknown."""
        total = self._sums()
        if total is None or not total.step_ms:
            return {}
        return {task: min(1.0, total.waits_ms[task] / total.step_ms) for task in self.tasks}

    def slow(self, named: str = "") -> Straggler | None:
        """The worker that holds the others up; `named`: the one that was named last."""
        total = self._sums()
        if total is None:
            return None
        if total.updates:
            return self._fewest(total, named)
        task = max(total.caused_ms, key=lambda task: total.caused_ms[task], default="")
        others = [other for other in self.tasks if other != task]
        kept = KEPT if task == named else 1.0
        if total.share(task) < CAUSED * kept or total.waits_for(task) < WAITS * kept:
            return None
        if sum(stretch.share(task) >= 0.5 for stretch in self._stretches) < OFTEN * kept * len(self._stretches):
            return None
        own, waited = (
            {each: sums[each] / total.steps for each in self.tasks} for sums in (total.own_ms, total.input_ms)
        )
        known = bool(total.input_ms)
        return Straggler(
            task,
            total.last[task] / total.steps,
            total.waits_for(task),
            total.step_ms / total.steps,
            own[task],
            median(own[other] for other in others),
            waited[task] if known else None,
            median(waited[other] for other in others) if known else None,
        )

    def _fewest(self, total: _Stretch, named: str) -> Straggler | None:
        task = min(self.workers, key=lambda task: total.updates[task])
        others = median(total.updates[other] for other in self.workers if other != task)
        limit = FEW if task != named else 1 - KEPT * (1 - FEW)
        if total.updates[task] >= limit * others:
            return None
        staleness = total.stale[task] / max(1, total.updates[task])
        return Straggler(task, updates=total.updates[task] / others, staleness=staleness)


def _number(value: object) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < 1e12 else None  # type: ignore[operator, arg-type]


def _numbers(value: object) -> list[float]:
    """The numbers of a JSON list; empty if it is none, or holds anything else."""
    numbers = [_number(each) for each in value] if isinstance(value, list | tuple) else []
    return [each for each in numbers if each is not None] if None not in numbers else []


def gpus_of(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The readings of GPUs in a `step` event, which may hold anything."""
    gpus = event.get("gpus")
    if not isinstance(gpus, list | tuple):
        return []
    return [gpu for gpu in gpus if isinstance(gpu, dict)]


Rates = Mapping[str, float]
"""What `agent_program.counters` counts of a task, each second; those of `NOW` as they are."""
NOW = frozenset(["cores", "clock_share", "disk_free_share"])


def rates_between(before: Rates, after: Rates) -> dict[str, float]:
    """The rates from two readings of the counters of a task; empty if no time lies between them."""
    seconds = after.get("time_s", 0.0) - before.get("time_s", 0.0)
    if seconds <= 0:
        return {}
    return {
        name: value if name in NOW else (value - before.get(name, value)) / seconds for name, value in after.items()
    }


def evidence(rates: Mapping[str, Rates], task: str) -> list[tuple[str, str]]:
    """What slows this task down and not the others, as far as their counters say: a kind and a text for each.

    A figure must be `least`, and twice that of the others.
    """
    own = rates.get(task, {})
    others = [values for name, values in rates.items() if name != task]

    def usual(name: str) -> float:
        return median(values.get(name, 0.0) for values in others) if others else 0.0

    def stands_out(name: str, least: float) -> bool:
        return own.get(name, 0.0) >= max(least, 2 * usual(name))

    found = []
    cores = max(1.0, own.get("cores", 1.0))
    if stands_out("throttled_s", 0.05):
        found.append(("throttled", f"its cgroup is throttled {min(1.0, own['throttled_s']):.0%} of the time"))
    if stands_out("steal_s", 0.05 * cores):
        share = own["steal_s"] / cores
        found.append(("steal", f"{share:.0%} of the time of its cores is stolen by other virtual machines"))
    if stands_out("other_busy_s", 0.1 * cores):
        of = "core" if cores == 1 else f"{cores:.0f} cores"
        found.append(("busy", f"other programs take {own['other_busy_s'] / cores:.0%} of its {of}"))
    if 0 < own.get("clock_share", 1.0) < 0.8 * (median(values.get("clock_share", 1.0) for values in others or [{}])):
        found.append(("clock", f"its cores run at {own['clock_share']:.0%} of their highest frequency"))
    if stands_out("major_faults", 20.0):
        found.append(("swap", f"it reads {own['major_faults']:.0f} pages a second back from the disk (swapping)"))
    if own.get("disk_free_share", 1.0) < 0.002 <= usual("disk_free_share"):
        found.append(("disk", "the disk of its folder is full"))
    if stands_out("resent", 10.0) and own["resent"] >= 0.01 * own.get("sent", 0.0):
        share = own["resent"] / max(own["resent"], own.get("sent", 0.0))
        found.append(("network", f"its host sends {share:.1%} of its TCP segments again"))
    return found


def cause(slow: Straggler, rates: Mapping[str, Rates], throttle: str = "") -> tuple[str, str]:
    """The kind and the text of the most likely cause: what the counters say, its input, or its own computation.

    Args:
        slow: the worker.
        rates: of the counters, by task.
        throttle: why its GPU is slowed down, as NVML says it; empty: it is not, or there is none.
    """
    found = [("gpu", f"its GPU is slowed down: {throttle}")] if throttle else []
    found += evidence(rates, slow.task)
    if slow.input_text:
        found.append(("input", slow.input_text))
    if found:
        return found[0][0], "; ".join(text for _, text in found[:2])
    if slow.updates is not None:
        return "unknown", "nothing on its host explains it"
    return "compute", f"it computes for {slow.own_ms:.0f} ms, the others for {slow.others_ms:.0f} ms"
