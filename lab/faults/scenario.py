"""What a scenario is: a fault, a job, a moment, and what is expected."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.faults.live import Live
    from lab.faults.sandbox import Sandbox

STEPS = 300
"""Steps of a training that is to end by itself."""
ENDLESS = 1_000_000
"""Steps of a job that only the fault ends."""
MIDDLE_STEP = 60
ANY = "any"
"""Instead of a culprit."""
EVERY = 20
"""Steps between two checkpoints."""

SAVED = ("--checkpoint-every", str(EVERY), "--checkpoint-dir", "{checkpoints}")
"""Options of a training that is saved."""


class Moment(Enum):
    """When a fault happens."""

    BEFORE = "before the launch"
    IMPORT = "while TensorFlow is imported"
    START = "before the first step"
    MIDDLE = "in the middle"
    END = "after the last step"
    SAVE = "during a save"


@dataclass(frozen=True)
class Job:
    """What is launched."""

    name: str
    options: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    program: tuple[str, ...] = ()
    """The user's own; empty: the built-in training. `{steps}` stands for the scenario's steps."""
    caller: str = ""
    """The program in `programs/` that calls `tfdist.run` with the options; empty: `tfdist launch`."""


@dataclass(frozen=True)
class Fault:
    """A fault, and how to cause it."""

    name: str
    summary: str
    """The heading of its section on the page."""
    inject: Callable[["Live", "Scenario"], None] | None = None
    """Causes it at the scenario's moment. None: it is there before the launch."""
    prepare: Callable[["Sandbox", "Scenario"], tuple[str, ...]] | None = None
    """Called before the launch; returns options for it."""
    by_itself: str = ""
    """The task causes it by itself, see `programs/sitecustomize.py`."""
    unread: bool = False
    """Nobody reads the launcher's output."""


@dataclass(frozen=True)
class Expected:
    """How the run must end."""

    code: int
    """Exit code of the launcher; -9: it was killed."""
    culprit: str | None = None
    """None: no task is to blame; ANY: it cannot be known which one is."""
    says: str = ""
    """Part of the sentence about the fault."""
    restarts: int | None = 0
    """None: any number; TensorFlow decides whether it fails."""
    detected_s: float | None = None
    """Time limit from the fault to the line that names it; None: no limit."""
    restarted: tuple[str, ...] | None = None
    """The tasks of the next attempt; None: not checked."""


@dataclass(frozen=True)
class Scenario:
    """One row of the table."""

    fault: Fault
    job: Job
    expected: Expected
    task: str = ""
    """The task that the fault is about; empty: none, or a host."""
    moment: Moment = Moment.MIDDLE
    options: tuple[str, ...] = ()
    restarts: int = 0
    """Value of --max-restarts; with checkpoints."""
    steps: int = STEPS
    variant: str = ""
    """Distinguishes it from others with the same values."""

    @property
    def name(self) -> str:
        """Unique; for the command line."""
        words = (self.fault.name, self.job.name, self.task, self.moment.name.lower(), self.variant)
        return "/".join((*filter(None, words), *(("restarts",) if self.restarts else ())))
