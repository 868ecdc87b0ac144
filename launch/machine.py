"""What one machine offers a job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfdist.launch import agent


@dataclass(frozen=True)
class Machine:
    """The cores this process may use and the GPUs it can see."""

    cores: tuple[int, ...]
    gpus: tuple[str, ...]
    """Their names, in CUDA's order."""
    gpu_ids: tuple[str, ...] = ()
    """What each is called in CUDA_VISIBLE_DEVICES; empty: 0, 1, ..."""

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "Machine":
        """From what an agent says of its host."""
        return cls(tuple(description["cores"]), tuple(description["gpus"]), tuple(description["gpu_ids"]))


def local_machine() -> Machine:
    """This machine."""
    return Machine.from_description(agent.describe())
