"""A suite's arms meet the machine: complete specs, or the sentence why there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tfdist.bench.suite import Arm
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine
from tfdist.models.spec import TrainingSpec


@dataclass(frozen=True)
class Arms:
    """What can run here, and what cannot."""

    specs: Mapping[str, TrainingSpec]
    """By arm."""
    refused: Mapping[str, str]
    """The sentence for each arm that cannot run here."""
    warnings: tuple[str, ...]


class Resolved(Protocol):
    """As `tfdist.models.presets.Resolved`."""

    @property
    def spec(self) -> TrainingSpec:
        """Complete."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should be told."""


Resolve = Callable[[Mapping[str, Any], Machine, str | None], Resolved]
"""As `tfdist.models.presets.resolve`."""


def resolve_arms(arms: Sequence[Arm], machine: Machine, preset: str | None, resolve: Resolve) -> Arms:
    """Each arm's spec on this machine, or its refusal."""
    specs: dict[str, TrainingSpec] = {}
    refused: dict[str, str] = {}
    warnings: list[str] = []
    for arm in arms:
        try:
            _check_gpus(arm, machine)
            resolved = resolve(arm.choices, machine, preset)
        except TfdistError as error:
            refused[arm.name] = str(error)
        else:
            specs[arm.name] = resolved.spec
            warnings += [f"{arm.name}: {text}" for text in resolved.warnings]
    return Arms(specs, refused, tuple(warnings))


def _check_gpus(arm: Arm, machine: Machine) -> None:
    """Devices are GPUs wherever there are any: an arm that asks for the other kind would be measured on the wrong."""
    wanted = arm.choices.get("gpus")
    if wanted is True and not machine.gpus:
        raise TfdistError("the arm needs GPUs and this machine shows none: run it on one that has")
    if wanted is False and machine.gpus:
        raise TfdistError("the arm is for CPU devices and GPUs are here: hide them with CUDA_VISIBLE_DEVICES=-1")
