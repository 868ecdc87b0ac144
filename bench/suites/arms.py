"""A suite's arms meet the machine: complete specs, or the sentence why there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Protocol

from tfdist.bench.suites.suite import Arm
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine, Machines, assign_slots, combined
from tfdist.models.spec import TrainingSpec


@dataclass(frozen=True)
class Arms:
    """What can run here, and what cannot."""

    specs: Mapping[str, TrainingSpec]
    """By arm."""
    refused: Mapping[str, str]
    """The sentence for each arm that cannot run here."""
    warnings: tuple[str, ...]
    machines: Mapping[str, Machines]
    """The hosts of each arm that can run, with room for its workers."""


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


def resolve_arms(arms: Sequence[Arm], machines: Machines, preset: str | None, resolve: Resolve) -> Arms:
    """Each arm's spec on its part of these machines, or its refusal."""
    specs: dict[str, TrainingSpec] = {}
    placed: dict[str, Machines] = {}
    refused: dict[str, str] = {}
    warnings: list[str] = []
    for arm in arms:
        try:
            own = _own(arm, machines)
            _check_gpus(arm, combined(own))
            resolved = resolve(arm.choices, combined(own), preset)
        except TfdistError as error:
            refused[arm.name] = str(error)
        else:
            specs[arm.name] = resolved.spec
            placed[arm.name] = with_room(own, resolved.spec.workers)
            warnings += [f"{arm.name}: {text}" for text in resolved.warnings]
    return Arms(specs, refused, tuple(warnings), placed)


def _own(arm: Arm, machines: Machines) -> Machines:
    """The first machines, as many as the arm wants; several with a number of slots each."""
    if arm.hosts > len(machines):
        there = "1 is there" if len(machines) == 1 else f"{len(machines)} are there"
        raise TfdistError(f"the arm needs {arm.hosts} hosts and {there}: name more with --hosts or --hostfile")
    own = dict(list(machines.items())[: arm.hosts])
    return assign_slots(own, None, arm.choices.get("devices", 1)) if arm.hosts > 1 else own


def with_room(machines: Machines, workers: int) -> Machines:
    """The machines with room for so many workers, spread evenly where users did not say how many a host takes."""
    if len(machines) == 1:
        return machines
    each = ceil(workers / len(machines))
    return {host: replace(machine, slots=host.slots or each) for host, machine in machines.items()}


def _check_gpus(arm: Arm, machine: Machine) -> None:
    """Devices are GPUs wherever there are any: an arm that asks for the other kind would be measured on the wrong."""
    wanted = arm.choices.get("gpus")
    if wanted is True and not machine.gpus:
        raise TfdistError("the arm needs GPUs and this machine shows none: run it on one that has")
    if wanted is False and machine.gpus:
        raise TfdistError("the arm is for CPU devices and GPUs are here: hide them with CUDA_VISIBLE_DEVICES=-1")
