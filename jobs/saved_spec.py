"""The file spec.json in a run's folder: what ran, and where its checkpoints are. No TensorFlow."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import read_json
from tfdist.launch.runs.rundir import RunDir
from tfdist.models.checkpointing import Checkpointing
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice


@dataclass(frozen=True)
class SavedSpec:
    """What a run was started with."""

    spec: StrategyChoice
    """A TrainingSpec for the built-in training."""
    command: tuple[str, ...] = ()
    """The user's own program, without its secrets; empty for the built-in training."""
    checkpointing: Checkpointing | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        checkpoints = {"checkpointing": asdict(self.checkpointing)} if self.checkpointing is not None else {}
        return {"command": list(self.command), **self.spec.to_json(), **checkpoints}


def read_saved_spec(run_dir: RunDir) -> SavedSpec | None:
    """The inverse of `to_json`; None if the file is missing, or another version of tfdist wrote it."""
    values = read_json(run_dir.spec)
    with suppress(TypeError, AttributeError, TfdistError):
        command: Sequence[str] = values.pop("command", ())
        checkpoints = values.pop("checkpointing", None)
        kind = StrategyChoice if command else TrainingSpec
        checkpointing = Checkpointing(**checkpoints) if checkpoints is not None else None
        return SavedSpec(kind.from_json(values), tuple(command), checkpointing)
    return None
