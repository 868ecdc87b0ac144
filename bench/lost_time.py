"""Where the time of a step goes that an arm loses against ideal scaling: parts that sum to the loss. Pure.

The loss is the arm's time for a step minus that of one device without a strategy, at the same work per device.
Throughput gives the times of whole steps, the stamps of `step_phases.py` those of their phases. With L the local phase,
U the update and X the exchange with the update:

    shared hardware    = step(independent) - step(one-device)
    strategy overhead  = step(one-device) - step(no-strategy), and L(arm) - L(independent) of the rank that waits most
    exchange           = X(arm) - U(independent)
    waiting            = of the rank that waits most
    input              = step(arm) - step(arm with synthetic data)
    unexplained        = the rest
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdist.bench.design import Block
from tfdist.bench.mean import Mean, mean_of
from tfdist.bench.references import Reference
from tfdist.bench.step_phases import StepPhases, phases_of
from tfdist.launch.str_enum import StrEnum
from tfdist.models.record import Record
from tfdist.models.throughput import examples_per_step, throughput

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
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Slowest:
    """The rank that the others wait for."""

    rank: str
    host: str
    share: float
    """Share of steps in which it was the last one, 0..1."""


@dataclass(frozen=True)
class LostTime:
    """The loss of one arm, in milliseconds per step."""

    arm: str
    devices: int
    step: Mean
    ideal: Mean
    loss: Mean
    parts: Mapping[Part, Mean]
    """Parts in the order of Part; those that could be measured. Their values sum to that of the loss."""
    rounds: int
    slowest: "Slowest | None" = None
    """None: unknown."""
    gradient_bytes: int = 0
    """0: unknown."""

    def largest(self, without: Part | None = None) -> Part | None:
        """The largest part of the loss, certain or not; None: none is above 0."""
        lost = [part for part, mean in self.parts.items() if mean.value > 0 and part is not without]
        return max(lost, key=lambda part: self.parts[part].value, default=None)

    def is_certain(self, largest: Part, without: Part | None = None) -> bool:
        """Whether the interval of the largest part is above those of the others."""
        low = self.parts[largest].low
        others = [mean for part, mean in self.parts.items() if part not in (largest, without)]
        return low is not None and all(low > (mean.value if mean.high is None else mean.high) for mean in others)


@dataclass(frozen=True)
class Undivided:
    """An arm whose loss cannot be divided, and why."""

    arm: str
    reason: str


def lost_time(
    arm: str, turns: Turns, references: Mapping[Reference, Turns], stamped: tuple[Turns, Turns] | None = None
) -> LostTime | Undivided:
    """The loss of an arm with several devices and its parts, over the rounds that all its references have, too.

    Args:
        arm: its name.
        turns: of the arm.
        references: the arms of `references.py` that were measured.
        stamped: turns with step times, of the arm (on synthetic data) and of its independent reference, if other ones.
    """
    known = {which: measured for which, measured in references.items() if measured}
    if not {Reference.PLAIN, Reference.ONE_DEVICE} & known.keys():
        return Undivided(arm, "no one-device arm of the same work was measured")
    if Reference.INDEPENDENT not in known:
        return Undivided(arm, "no independent arm with the same work and number of devices was measured")
    rounds = sorted(set(turns).intersection(*known.values()))
    if not rounds:
        return Undivided(arm, "the arm and those that it is compared with have no round in common")
    phases = _phases(*(stamped or (known.get(Reference.SYNTHETIC, turns), known[Reference.INDEPENDENT])), rounds)
    waits = _most_waiting(phases)
    slowest = _slowest(phases)
    values = [
        _parts(turns[number], {w: r[number] for w, r in known.items()}, phases.get(number), waits) for number in rounds
    ]
    blocks = [Block(turns[number].group, number, turns[number].incarnation or number) for number in rounds]

    def mean(figures: Sequence[float]) -> Mean:
        return mean_of(dict(zip(blocks, figures, strict=True)))

    steps = [sum(parts.values(), ideal) for ideal, parts in values]
    parts = {part: mean([each[part] for _, each in values]) for part in Part if part in values[0][1]}
    return LostTime(
        arm,
        _replicas(turns[rounds[0]]),
        mean(steps),
        mean([ideal for ideal, _ in values]),
        mean([sum(each.values()) for _, each in values]),
        parts,
        len(rounds),
        slowest,
        max((of_arm.gradient_bytes for of_arm, _ in phases.values()), default=0),
    )


_Phases = Mapping[int, tuple[StepPhases, StepPhases]]
"""Step phases by round: of the arm, and of its independent trainings."""


def _phases(turns: Turns, independent: Turns, rounds: Sequence[int]) -> _Phases:
    """Empty unless all rounds have stamps: a mean over other rounds would not sum to the loss."""
    both = [number for number in rounds if number in turns and number in independent]
    pairs = {number: (phases_of(turns[number]), phases_of(independent[number])) for number in both}
    complete = {number: (one, other) for number, (one, other) in pairs.items() if one and other}
    return complete if len(complete) == len(rounds) else {}


def _most_waiting(phases: _Phases) -> int:
    """The index of the rank that waits most over all turns."""
    import numpy as np

    return int(np.sum([of_arm.waiting_ms for of_arm, _ in phases.values()], axis=0).argmax()) if phases else 0


def _slowest(phases: _Phases) -> Slowest | None:
    """The rank that was the last one in most steps."""
    import numpy as np

    if not phases:
        return None
    turns = [of_arm for of_arm, _ in phases.values()]
    shares = np.mean([turn.last for turn in turns], axis=0)
    rank = turns[0].ranks[int(shares.argmax())]
    return Slowest(rank.name, rank.host, float(shares.max()))


def _parts(
    record: Record, references: Mapping[Reference, Record], phases: tuple[StepPhases, StepPhases] | None, waits: int
) -> tuple[float, dict[Part, float]]:
    """The ideal time of a step and the parts of the loss in one round, in milliseconds."""
    examples = examples_per_step(record)
    devices = _replicas(record)

    def step_ms(which: Reference) -> float:
        """Step time of these devices at the speed of the reference, for as many examples."""
        other = references[which]
        return 1000 * examples / throughput(other) * _replicas(other) / devices

    step, independent = 1000 * examples / throughput(record), step_ms(Reference.INDEPENDENT)
    one = step_ms(Reference.ONE_DEVICE if Reference.ONE_DEVICE in references else Reference.PLAIN)
    ideal = step_ms(Reference.PLAIN) if Reference.PLAIN in references else one
    synthetic = step_ms(Reference.SYNTHETIC) if Reference.SYNTHETIC in references else step
    parts = {Part.SHARED: independent - one, Part.STRATEGY: one - ideal}
    if phases is None:
        parts[Part.NOT_SEPARATED] = synthetic - independent
    else:
        of_arm, alone = phases
        parts[Part.STRATEGY] += float(of_arm.mean_local_ms[waits] - alone.mean_local_ms.mean())
        parts[Part.EXCHANGE] = of_arm.exchange_ms - alone.update_ms
        parts[Part.WAITING] = float(of_arm.waiting_ms[waits])
    if Reference.SYNTHETIC in references:
        parts[Part.INPUT] = step - synthetic
    if phases is not None:
        parts[Part.UNEXPLAINED] = step - ideal - sum(parts.values())
    return ideal, parts


def _replicas(record: Record) -> int:
    return int(record.spec["workers"] * record.spec["devices"])
