"""What textbooks say, held against what was measured. Pure."""

from dataclasses import dataclass

from tfdist.bench.statistics import Interval
from tfdist.launch.str_enum import StrEnum


class ClaimResult(StrEnum):
    """Whether a claim agrees with a measurement."""

    HELD_UP = "held up"
    NOT_HELD_UP = "not held up"
    CANNOT_TELL = "cannot tell"


def below(interval: Interval | None, bound: float) -> ClaimResult:
    """Outcome of the claim that a quantity is below `bound`, from the quantity's interval; None: no interval."""
    if interval is None or interval.low <= bound <= interval.high:
        return ClaimResult.CANNOT_TELL
    return ClaimResult.HELD_UP if interval.high < bound else ClaimResult.NOT_HELD_UP


def above(interval: Interval | None, bound: float) -> ClaimResult:
    """Outcome of the claim that a quantity is above `bound`."""
    opposite = {ClaimResult.HELD_UP: ClaimResult.NOT_HELD_UP, ClaimResult.NOT_HELD_UP: ClaimResult.HELD_UP}
    outcome = below(interval, bound)
    return opposite.get(outcome, outcome)


@dataclass(frozen=True)
class Claim:
    """A claim with the measurements that it was held against."""

    text: str
    measured: tuple[str, ...]
    """Each a clause."""
    outcomes: tuple[ClaimResult, ...]
    """Outcomes of each measurement."""

    @property
    def outcome(self) -> ClaimResult:
        """That of all measurements; if they differ, `not held up` wins over `cannot tell`."""
        order = (ClaimResult.NOT_HELD_UP, ClaimResult.CANNOT_TELL, ClaimResult.HELD_UP)
        return next(outcome for outcome in order if outcome in self.outcomes)

    @property
    def sentence(self) -> str:
        """`"...": held up. measured; measured.`"""
        return f'"{self.text}": {self.outcome}. {"; ".join(self.measured)}.'
