"""What the pods of a manifest run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdist.launch.job import RoleShape


@dataclass(frozen=True)
class Workload:
    """A job whose tasks a cluster starts: a pod each."""

    roles: Mapping[str, RoleShape]
    """Shapes by role, in the order of the tasks."""
    arguments: tuple[str, ...]
    """Arguments of `tfdist` in every pod, from the command on."""
    command: tuple[str, ...] = ()
    """The user's own program; empty for the built-in training."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every pod."""
    max_restarts: int = 0
    """Restarts of all pods after failures; those after preemption are not counted."""
    timeout_s: float | None = None
    """Limit of each attempt; None: no limit."""
    save_s: float = 25.0
    """Longest time between SIGTERM and the end of `tfdist launch`: for a checkpoint."""

    @property
    def leading(self) -> list[str]:
        """The roles whose tasks' success is that of the job."""
        return [name for name, role in self.roles.items() if role.leads]
