"""Where and how often a training is saved. Tasks receive it through the environment. No TensorFlow."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

KEEP = 3
"""Checkpoints that are kept by default."""


@dataclass(frozen=True)
class Checkpointing:
    """How the built-in training is saved."""

    VARIABLE: ClassVar[str] = "TFDIST_CHECKPOINTING"
    FOLDER_VARIABLE: ClassVar[str] = "TFDIST_CHECKPOINT_DIR"
    """The folder alone, for custom programs."""

    folder: str
    """Anything that tf.io.gfile writes: a path on a local or shared disk, or gs://..."""
    every_steps: int | None = None
    every_s: float | None = None
    """Seconds between two checkpoints. With neither of the two: only at the end, and when the job is preempted."""
    keep: int = KEEP
    """Number of checkpoints that are kept, the newest ones."""
    resume: bool = False
    """Continue from what is in the folder. Otherwise only a restart does, and a folder that holds some is refused."""
    may_be_empty: bool = False
    """Whether `resume` starts from the beginning without any checkpoint in the folder."""

    def to_env(self) -> dict[str, str]:
        """The variables of every task."""
        return {self.VARIABLE: json.dumps(asdict(self)), self.FOLDER_VARIABLE: self.folder}

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> "Checkpointing | None":
        """The value that `to_env` wrote; None if the training is not saved."""
        text = environ.get(cls.VARIABLE)
        return cls(**json.loads(text)) if text else None
