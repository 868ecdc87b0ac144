"""Where the time of a step goes that an arm loses against ideal scaling: parts that sum to the loss. Pure.

The loss is the arm's time for a step minus that of one device without a strategy, at the same work per device.
Throughput gives the times of whole steps, the stamps of a turn's steps those of their phases. A step of a rank has
a local phase, until its gradients are ready, and a common one: it waits for the last rank, then gradients are exchanged
and applied. A collective ends at the same time on all ranks, so the rank that needs least from ready to done did not
wait: its time is the exchange, and what the others need beyond it is their waiting. With L the local phase,
U the update and X the exchange with the update:

    shared hardware    = step(independent) - step(one-device)
    strategy overhead  = step(one-device) - step(no-strategy), and L(arm) - L(independent) of the rank that waits most
    exchange           = X(arm) - U(independent)
    waiting            = of the rank that waits most
    input              = step(arm) - step(arm with synthetic data)
    timing difference  = the rest

The rest is by construction the difference of two clocks: what the throughput of the arm and that of the independent
trainings say of a step beyond its stamps. That the parts sum to the loss therefore validates none of them; planted
delays do (tests/bench/test_lost_time.py).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from tfdist.bench.design import Block
from tfdist.bench.growth import Array
from tfdist.bench.mean import Mean, means_of
from tfdist.bench.references import Reference, replicas
from tfdist.launch.str_enum import StrEnum
from tfdist.models.record import Record
from tfdist.models.throughput import examples_per_step, throughput

NAME = "step_times"
"""Name in TurnRecord.observed."""


@dataclass(frozen=True)
class Rank:
    """One replica's steps of a turn."""

    name: str
    host: str
    ready: Array
    """Seconds at which its gradients were ready, by step."""
    done: Array
    """Seconds at which its update was done."""


@dataclass(frozen=True)
class StepPhases:
    """The steps of one turn, in milliseconds; each array has ranks x steps."""

    ranks: tuple[Rank, ...]
    gradient_bytes: int

    @cached_property
    def local_ms(self) -> Array:
        """Time from the end of the step before to the local gradients."""
        return np.array([1000 * (rank.ready[1:] - rank.done[:-1]) for rank in self.ranks], float)

    @cached_property
    def after_ms(self) -> Array:
        """Time from the local gradients to the end of the step."""
        return np.array([1000 * (rank.done[1:] - rank.ready[1:]) for rank in self.ranks], float)

    @property
    def exchange_ms(self) -> float:
        """Mean over steps of the shortest time from ready to done; the update of the variables is in it."""
        return float(self.after_ms.min(axis=0).mean())

    @property
    def waiting_ms(self) -> Array:
        """Mean time that each rank waits for the last one."""
        waiting: Array = (self.after_ms - self.after_ms.min(axis=0)).mean(axis=1)
        return waiting

    @property
    def last(self) -> Array:
        """The share of steps, 0..1, in which each rank was the last one."""
        last: Array = np.bincount(self.after_ms.argmin(axis=0), minlength=len(self.ranks)) / self.after_ms.shape[1]
        return last


def phases_of(record: Record) -> StepPhases | None:
    """The steps of a turn; None if it has no stamps of at least two common steps.

    Clocks of hosts differ. Each host's is shifted so that its steps end, in the median, when those of the first host
    do: all ranks leave a collective together.
    """
    found = {rank.task: record.observed.get(rank.task, {}).get(NAME) for rank in record.ranks}
    times = {task: each for task, each in found.items() if isinstance(each, Mapping) and _complete(each)}
    if not times or len(times) < len(found):
        return None
    steps = min(len(each["done"]) for each in times.values())
    if steps < 2:
        return None
    ranks = [rank for task in record.ranks for rank in _ranks(task.task, task.host, times[task.task], steps)]
    return StepPhases(tuple(_aligned(ranks)), max(int(each.get("gradient_bytes", 0)) for each in times.values()))


def _complete(times: Mapping[str, Any]) -> bool:
    ready, done = times.get("ready") or [], times.get("done") or []
    return "start" in times and bool(ready and done) and all(len(row) == len(done) for row in ready)


def _ranks(task: str, host: str, times: Mapping[str, Any], steps: int) -> list[Rank]:
    done = times["start"] + np.array(times["done"][:steps], float)
    rows = [times["start"] + np.array(row[:steps], float) for row in times["ready"]]
    names = [task] if len(rows) == 1 else [f"{task}, replica {number}" for number in range(len(rows))]
    return [Rank(name, host, ready, done) for name, ready in zip(names, rows, strict=True)]


def _aligned(ranks: list[Rank]) -> Iterator[Rank]:
    first = {rank.host: rank for rank in reversed(ranks)}
    shifts = {host: float(np.median(rank.done - ranks[0].done)) for host, rank in first.items()}
    for rank in ranks:
        shift = shifts[rank.host]
        yield Rank(rank.name, rank.host, rank.ready - shift, rank.done - shift)


_WHOLE = ("step", "ideal")
"""Figures of one arm; all others are differences of two."""
Turns = Mapping[int, Record]
"""The measured turns of an arm, by round."""


class Part(StrEnum):
    """A part of the loss."""

    SHARED = "shared hardware"
    STRATEGY = "strategy overhead"
    EXCHANGE = "exchange"
    WAITING = "waiting"
    NOT_SEPARATED = "exchange and waiting"
    """Name of the part of arms without step times."""
    INPUT = "input"
    TIMING = "timing difference"
    """How far whole steps and their stamps disagree; not a cause."""


@dataclass(frozen=True)
class Slowest:
    """The rank that the others wait for."""

    rank: str
    host: str
    share: float
    """Share of steps in which it was the last one, 0..1."""


@dataclass(frozen=True)
class LossByTurn:
    """The loss of one arm, and what else is known of it."""

    arm: str
    devices: int
    ideal_arm: str
    """Name of the arm whose step is ideal."""
    turns: Mapping[Block, Mapping[str, float]]
    """Milliseconds per step of each turn: `step`, `ideal`, `loss` and the parts that could be measured."""
    slowest: Slowest | None
    """None: unknown."""
    gradient_bytes: int
    """0: unknown."""

    @property
    def rounds(self) -> int:
        """The number of turns, one in each round."""
        return len(self.turns)


@dataclass(frozen=True)
class LostTime(LossByTurn):
    """The loss of one arm, in milliseconds per step."""

    step: Mean
    ideal: Mean
    loss: Mean
    parts: Mapping[Part, Mean]
    """Parts in the order of Part; those that could be measured. Their values sum to that of the loss."""

    def largest(self, without: Part | None = None) -> Part | None:
        """The largest part of the loss, certain or not; None: none is above 0."""
        lost = [part for part, mean in self.parts.items() if mean.value > 0 and part is not without]
        return max(lost, key=lambda part: self.parts[part].value, default=None)

    def is_certain(self, largest: Part, without: Part | None = None) -> bool:
        """Whether the interval of the largest part is above those of the others."""
        low = self.parts[largest].low
        if low is None:
            return False
        others = [mean for part, mean in self.parts.items() if part not in (largest, without)]
        return all(low > (mean.value if mean.high is None else mean.high) for mean in others)


@dataclass(frozen=True)
class UnknownLoss:
    """An arm whose loss cannot be divided, and why."""

    arm: str
    reason: str


def mean_losses(every: Sequence[LossByTurn]) -> tuple[LostTime, ...]:
    """The means over the starts of each arm, with intervals that rest on the starts of all arms (`means_of`)."""

    def means(name: str) -> Mapping[str, Mean]:
        values = {each.arm: {block: turn[name] for block, turn in each.turns.items() if name in turn} for each in every}
        scale = "ideal" if name in ("ideal", Part.SHARED) else "step"
        scales = {each.arm: fmean(turn[scale] for turn in each.turns.values()) for each in every}
        least = 0.0 if name in (*_WHOLE, Part.WAITING) else -math.inf
        return means_of(values, scales, 1 if name in _WHOLE else 2, least)

    step, ideal, loss = means("step"), means("ideal"), means("loss")
    parts = {part: means(part) for part in Part}
    return tuple(
        LostTime(
            **vars(each),
            step=step[each.arm],
            ideal=ideal[each.arm],
            loss=loss[each.arm],
            parts={part: of_arms[each.arm] for part, of_arms in parts.items() if each.arm in of_arms},
        )
        for each in every
    )


def loss_by_turn(
    arm: str, turns: Turns, references: Mapping[Reference, Turns], stamped: tuple[Turns, Turns] | None = None
) -> LossByTurn | UnknownLoss:
    """The loss of an arm with several devices and its parts, over the rounds that all its references have, too.

    Args:
        arm: its name.
        turns: of the arm.
        references: the arms of `references.py` that were measured.
        stamped: turns with step times, of the arm (on synthetic data) and of its independent reference, if other ones.
    """
    known = {which: measured for which, measured in references.items() if measured}
    if not {Reference.PLAIN, Reference.ONE_DEVICE} & known.keys():
        return UnknownLoss(arm, "no one-device arm of the same work was measured")
    if Reference.INDEPENDENT not in known:
        return UnknownLoss(arm, "no independent arm with the same work and number of devices was measured")
    rounds = sorted(set(turns).intersection(*known.values()))
    if not rounds:
        return UnknownLoss(arm, "the arm and those that it is compared with have no round in common")
    phases = _phases(*(stamped or (known.get(Reference.SYNTHETIC, turns), known[Reference.INDEPENDENT])), rounds)
    waiting = [of_arm.waiting_ms for of_arm, _ in phases.values()]
    waits = int(np.sum(waiting, axis=0).argmax()) if phases else 0  # the rank that waits most over all turns
    parts = {}
    for number in rounds:
        turn = turns[number]
        block = Block(abs(turn.group), number, turn.incarnation or number)
        beside = {which: of_arm[number] for which, of_arm in known.items()}
        parts[block] = _parts(turn, beside, phases.get(number), waits)
    ideal = known[Reference.PLAIN if Reference.PLAIN in known else Reference.ONE_DEVICE][rounds[0]].arm
    size = max((of_arm.gradient_bytes for of_arm, _ in phases.values()), default=0)
    return LossByTurn(arm, replicas(turns[rounds[0]].spec), ideal, parts, _slowest(phases), size)


_Phases = Mapping[int, tuple[StepPhases, StepPhases]]
"""Step phases by round: of the arm, and of its independent trainings."""


def _phases(turns: Turns, independent: Turns, rounds: Sequence[int]) -> _Phases:
    """Empty unless all rounds have stamps: a mean over other rounds would not sum to the loss."""
    pairs = {n: (phases_of(turns[n]), phases_of(independent[n])) for n in rounds if n in turns and n in independent}
    complete = {number: (one, other) for number, (one, other) in pairs.items() if one and other}
    return complete if len(complete) == len(rounds) else {}


def _slowest(phases: _Phases) -> Slowest | None:
    """The rank that was the last one in most steps."""
    if not phases:
        return None
    turns = [of_arm for of_arm, _ in phases.values()]
    shares = np.mean([turn.last for turn in turns], axis=0)
    rank = turns[0].ranks[int(shares.argmax())]
    return Slowest(rank.name, rank.host, float(shares.max()))


def _parts(
    record: Record, references: Mapping[Reference, Record], phases: tuple[StepPhases, StepPhases] | None, waits: int
) -> dict[str, float]:
    """The figures of `LossByTurn.turns` in one round."""
    examples = examples_per_step(record)
    devices = replicas(record.spec)

    def step_ms(which: Reference) -> float:
        """Step time of these devices at the speed of the reference, for as many examples."""
        other = references[which]
        return 1000 * examples / throughput(other) * replicas(other.spec) / devices

    step = 1000 * examples / throughput(record)
    independent = step_ms(Reference.INDEPENDENT)
    one = step_ms(Reference.ONE_DEVICE if Reference.ONE_DEVICE in references else Reference.PLAIN)
    ideal = step_ms(Reference.PLAIN) if Reference.PLAIN in references else one
    synthetic = step_ms(Reference.SYNTHETIC) if Reference.SYNTHETIC in references else step
    parts: dict[str, float] = {Part.SHARED: independent - one, Part.STRATEGY: one - ideal}
    if phases is None:
        parts[Part.NOT_SEPARATED] = synthetic - independent
    else:
        of_arm, alone = phases
        parts[Part.STRATEGY] += float(of_arm.local_ms[waits].mean() - alone.local_ms.mean())
        parts[Part.EXCHANGE] = of_arm.exchange_ms - float(alone.after_ms.mean())  # without exchange: the update
        parts[Part.WAITING] = float(of_arm.waiting_ms[waits])
    if Reference.SYNTHETIC in references:
        parts[Part.INPUT] = step - synthetic
    if phases is not None:
        parts[Part.TIMING] = step - ideal - sum(parts.values())
    return {"step": step, "ideal": ideal, "loss": step - ideal, **parts}
