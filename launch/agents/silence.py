"""Detects agents that stopped sending: a cut network does not end a TCP stream."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tfdist.launch.agent_program.clock import event_time
from tfdist.launch.agents.channel import Channel
from tfdist.launch.agents.launcher_messages import AgentLost


@dataclass
class SilenceDetector:
    """Finds agents on other hosts that have sent nothing for `limit_s` seconds. Times are monotonic.

    If checks pause for longer than half the limit (launcher suspended, or blocked by the console), the limit starts
    again. The local agent is exempt: its stream ends if it dies.
    """

    limit_s: float
    last_check: float = field(default_factory=time.monotonic)
    resumed_at: float = -math.inf

    def newly_silent(self, channels: Iterable[Channel], now: float) -> list[tuple[Channel, AgentLost]]:
        """Agents that have passed their deadline since the last call. Marks their channels as silent."""
        if now - self.last_check > self.limit_s / 2:
            self.resumed_at = now
        self.last_check = now
        expired = [channel for channel in channels if now >= self.deadline(channel)]
        for channel in expired:
            channel.silent = True
        heard_at = event_time() - self.limit_s
        reason = f"no message for {self.limit_s:g} s"
        return [(channel, AgentLost(channel.host.name, reason, heard_at)) for channel in expired]

    def deadline(self, channel: Channel) -> float:
        """When the agent counts as lost if it sends nothing more; infinity if it is local or already lost."""
        if channel.host.local or channel.silent:
            return math.inf
        return max(channel.last_received, self.resumed_at) + self.limit_s
