"""What a supervisor does at certain times."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

Action = Callable[[float], None]
"""Called with the monotonic time, when it is due."""


@dataclass
class Deadlines:
    """Actions with the monotonic times at which they are due. Each action has at most one time."""

    times: dict[Action, float] = field(default_factory=dict)

    def set(self, action: Action, at: float) -> None:
        """Do this at that time, and not at the time that was set before."""
        self.times[action] = at

    def cancel(self, *actions: Action) -> None:
        """Do not do these."""
        for action in actions:
            self.times.pop(action, None)

    def of(self, action: Action) -> float | None:
        """When this is due; None: not at all."""
        return self.times.get(action)

    def next(self) -> float:
        """When the first action is due; infinity without any."""
        return min(self.times.values(), default=math.inf)

    def run_due(self, now: float) -> None:
        """Do what is due, in the order of the times. An action may set and cancel others."""
        for action in sorted(self.times, key=self.times.__getitem__):
            if self.times.get(action, math.inf) <= now:
                del self.times[action]
                action(now)
