"""Agents that have fallen silent: a network that is cut ends no stream."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tfdist.launch.agents.channel import Channel
from tfdist.launch.agents.messages import AgentLost


@dataclass
class SilenceDetector:
    """Looks for agents on other hosts that have said nothing for `limit_s` seconds. Times are monotonic.

    What was not heard while nobody looked (we were paused, held up by a console, or waited for no answer) does not
    count. The local agent may be silent: its stream tells when it ends.
    """

    limit_s: float
    looked: float = field(default_factory=time.monotonic)
    awake_since: float = -math.inf

    def look(self, channels: Iterable[Channel], now: float) -> list[tuple[Channel, AgentLost]]:
        """Those that are lost since the last look."""
        if now - self.looked > self.limit_s / 2:
            self.awake_since = now
        self.looked = now
        found = [channel for channel in channels if now >= self.due(channel)]
        for channel in found:
            channel.silent = True
        return [(one, AgentLost(one.host.name, f"it said nothing for {self.limit_s:g} s")) for one in found]

    def due(self, channel: Channel) -> float:
        """From when on an agent that says nothing more is lost; infinity if it cannot be, or is already."""
        if channel.host.local or channel.silent:
            return math.inf
        return max(channel.heard, self.awake_since) + self.limit_s
