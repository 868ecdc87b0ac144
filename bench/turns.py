"""The length of a turn, and what the hosts used meanwhile. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfdist.launch.agents.messages import Inspected
from tfdist.launch.events import Turn
from tfdist.models.record import HostUsage, Record, Window

END = Turn(0, 0)
"""The release that ends the tasks."""
STEPS_PER_WINDOW = 3
"""The fewest."""


@dataclass(frozen=True)
class HostReading:
    """The counters of one host just before a turn and just after it."""

    before: Inspected | None
    """None: the tasks have just started."""
    after: Inspected

    @property
    def usage(self) -> HostUsage | None:
        """The differences; None without a reading before."""
        before, after = self.before, self.after
        needed = {"busy_s", "steal_s", "cores"}
        if before is None or not needed <= before.host.keys() & after.host.keys():
            return None
        cpu_s = {task: after.cpu_s[task] - before.cpu_s.get(task, 0.0) for task in after.cpu_s}
        busy_s, steal_s = (after.host[key] - before.host[key] for key in ("busy_s", "steal_s"))
        seconds = max(after.time - before.time, 1e-3)
        return HostUsage(seconds, max(1, int(after.host["cores"])), cpu_s, busy_s, steal_s)


@dataclass(frozen=True)
class Parked:
    """All leading tasks of an arm wait at the barrier."""

    arm: str
    step_s: float
    """Seconds that a step takes, of the slowest task."""
    windows: Mapping[str, tuple[Window, ...]]
    """Windows of the turn, by task; empty before the first turn."""
    readings: tuple[HostReading, ...]
    """One per host."""
    record: Record
    """Record of the incarnation so far."""
    observed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Observations of the turn, by task; see TurnRecord.observed."""

    @property
    def hosts(self) -> tuple[HostUsage, ...]:
        """What each host used during the turn."""
        return tuple(usage for reading in self.readings if (usage := reading.usage) is not None)


def plan_turn(seconds: float, step_s: float, window_s: float) -> Turn:
    """A turn of about `seconds`, of windows of at least `window_s` and STEPS_PER_WINDOW steps.

    Every task takes the same numbers of steps, so that those of a synchronous job need not agree during the turn.
    """
    step_s = max(step_s, 1e-6)
    steps = max(STEPS_PER_WINDOW, math.ceil(window_s / step_s))
    return Turn(max(1, round(seconds / (steps * step_s))), steps)


def plan_warmup(seconds: float, step_s: float) -> Turn:
    """One window of about `seconds`."""
    return Turn(1, max(1, math.ceil(seconds / max(step_s, 1e-6))))
