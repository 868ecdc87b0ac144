"""Whether a turn was disturbed: by load of other programs, stolen CPU time or a drift. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from tfdist.models.record import HostUsage, TurnRecord, Window

LIMIT = 0.05
"""Share of all cores, or change of the step time, above which a turn is disturbed."""
_HALF = 2
"""Fewest windows of a half: single ones differ by more than LIMIT by noise."""
_NOISES = 2
"""A drift exceeds this many standard errors. Of steady turns of 5 windows with 4 % of noise, 6 % exceed LIMIT and this;
of those that slow down by 20 % from the first to the last window, 90 % do."""

Cause = Literal["others", "steal", "drift"]


@dataclass(frozen=True)
class Disturbance:
    """One reason to distrust a turn."""

    cause: Cause
    share: float
    """Share of all cores, 0..1; for a drift the second half's step time over the first half's, less 1."""

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

    The middle one of an odd number of windows belongs to neither half. The noise is estimated from the differences of
    consecutive windows (von Neumann 1941): drift makes them hardly larger, a single slow window much.
    """
    rows = [[window for window in row if window.steps] for row in zip(*windows.values(), strict=False)]
    # seconds per step in each window, all ranks together
    times = [sum(window.elapsed_s for window in row) / sum(window.steps for window in row) for row in rows if row]
    half = len(times) // 2
    if half < _HALF:
        return 0.0
    change = fmean(times[-half:]) - fmean(times[:half])
    variance = fmean((later - earlier) ** 2 for earlier, later in pairwise(times)) / 2
    if abs(change) <= _NOISES * math.sqrt(variance * 2 / half):
        return 0.0
    return change / fmean(times[:half])
