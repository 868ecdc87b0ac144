"""Whether a turn was disturbed: by load of other programs, stolen CPU time or a drift. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tfdist.models.record import HostUsage, TurnRecord, Window

LIMIT = 0.05
"""Share of all cores, or change of the step time, above which a turn is disturbed."""
_HALF = 2
"""Fewest windows in which a half of a turn can show a drift: single windows differ by more than LIMIT by noise."""

Cause = Literal["others", "steal", "drift"]


@dataclass(frozen=True)
class Disturbance:
    """One reason to distrust a turn."""

    cause: Cause
    share: float
    """Of all cores, 0..1; for a drift the second half's step time over the first half's, less 1."""

    def __str__(self) -> str:
        if self.cause == "others":
            return f"other programs used {self.share:.0%} of the cores"
        if self.cause == "steal":
            return f"other virtual machines took {self.share:.0%} of the cores"
        return f"its second half was {abs(self.share):.0%} {'slower' if self.share > 0 else 'faster'} than its first"


def disturbed(turn: TurnRecord) -> str:
    """Why the turn should be repeated; empty if it was not disturbed."""
    return "; ".join(map(str, disturbances(turn.windows, turn.hosts)))


def disturbances(windows: Mapping[str, Sequence[Window]], hosts: Sequence[HostUsage]) -> tuple[Disturbance, ...]:
    """What exceeded LIMIT during a turn with these windows by task, on any of these hosts."""
    found = (
        Disturbance("others", max((host.others for host in hosts), default=0.0)),
        Disturbance("steal", max((host.steal for host in hosts), default=0.0)),
        Disturbance("drift", _drift(windows)),
    )
    return tuple(one for one in found if abs(one.share) > LIMIT)


def _drift(windows: Mapping[str, Sequence[Window]]) -> float:
    """The step time of the second half of the windows over the first half's, less 1; 0: none that exceeds the noise.

    The middle one of an odd number of windows belongs to neither half. A single slow window is no drift: every window
    of one half must be slower than every window of the other.
    """
    times = _step_times(windows)
    half = len(times) // 2
    if half < _HALF:
        return 0.0
    first, second = times[:half], times[-half:]
    if max(first) >= min(second) and max(second) >= min(first):
        return 0.0
    return sum(second) / sum(first) - 1


def _step_times(windows: Mapping[str, Sequence[Window]]) -> list[float]:
    """Seconds per step in each window, all ranks together."""
    rows = [[window for window in row if window.steps] for row in zip(*windows.values(), strict=False)]
    return [sum(window.elapsed_s for window in row) / sum(window.steps for window in row) for row in rows if row]
