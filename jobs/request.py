"""What was asked: the values that define a job, each from the step that read it. No step changes another's."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tfdist.jobs.checkpoint_source import CheckpointSource
from tfdist.jobs.inherit import Inherit
from tfdist.jobs.recovery import Recovery
from tfdist.launch.program_copy import ProgramCopy
from tfdist.launch.supervision.restarts import SavedState
from tfdist.strategies.choice import StrategyChoice

ALL, NONE = "all", "none"
"""Values of --output."""


@dataclass(frozen=True)
class Size:
    """The size of a job that is restarted on other hosts."""

    workers: int
    ps: int
    saved: SavedState
    """The checkpoint that it continues from."""


@dataclass(frozen=True)
class Request:
    """A job as it was asked for: by words, variables and a job file (`choices` and what follows them), by --resume
    (`source`) or --inherit, by a suite (`choices`, `paced`) or by the launcher for a restart (`size`)."""

    choices: Mapping[str, Any]
    """Values by TrainingSpec's field names, `preset` and `global_batch_size`; None counts as not given."""
    command: tuple[str, ...] = ()
    """The user's own program; empty: the built-in training."""
    port: int | None = None
    """Port of the first task on each host; None: free ports."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every task."""
    inherit: Inherit | None = None
    """Run only the task that the environment describes; None: all tasks."""
    recovery: Recovery = field(default_factory=Recovery)
    source: CheckpointSource | None = None
    """What --resume names."""
    output: str = ALL
    """The tasks whose lines are printed, as of --output."""
    trace: bool = False
    """Trace the last steps of the warm-up."""
    run_dir: str = ""
    """The run's folder, an absolute path, or where it will be; empty: the job has none."""
    dry_run: bool = False
    """Nothing is started: folders need not exist, and hosts may be busy."""
    size: Size | None = None
    paced: bool = False
    """Its tasks train when they are released, a turn at a time."""
    pinned: bool = True
    """False: tasks are pinned to no cores, unless that was chosen."""
    collective: Mapping[str, Any] | None = None
    """Fields of CollectiveSpec: its tasks measure that instead of training; None: they train."""
    cwd: str = ""
    """Working folder of the tasks of the user's own program; empty: the current one."""
    copy: ProgramCopy | None = None
    """The folder that travels to all hosts, in whose copy the user's own program runs."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """The launcher's variables."""

    @property
    def base(self) -> StrategyChoice | None:
        """What is resumed: it has the values of options that are not given."""
        return None if self.source is None else self.source.spec

    @property
    def own(self) -> bool:
        """Whether the tasks run the user's own program."""
        return bool(self.command)

    @property
    def checkpoint_dir(self) -> str | None:
        """The folder that was chosen for checkpoints; None: that in the run's folder, if there are any."""
        return self.recovery.checkpoint_dir if self.source is None else self.source.folder

    @property
    def devices(self) -> int:
        """Devices per task; 1 if not given."""
        return max(1, int(self.choices.get("devices", 1 if self.base is None else self.base.devices)))

    def choosing(self, **choices: Any) -> "Request":
        """The request with these choices, too."""
        return replace(self, choices={**self.choices, **choices})
