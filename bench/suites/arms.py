"""The arms of a suite on these machines: a complete spec each, or the reason why it cannot run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from tfdist.bench.suites.suite import Arm
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine, Machines, assign_slots, combined
from tfdist.launch.text import counted
from tfdist.models.presets import resolve
from tfdist.models.spec import TrainingSpec


@dataclass(frozen=True)
class Arms:
    """The arms that can run on these machines, and those that cannot; mappings are by arm name."""

    specs: Mapping[str, TrainingSpec]
    refused: Mapping[str, str]
    """The reason, one sentence."""
    warnings: tuple[str, ...]
    machines: Mapping[str, Machines]
    """The hosts of each arm that can run, with slots for its workers."""


def resolve_arms(arms: Sequence[Arm], machines: Machines, preset: str | None) -> Arms:
    """Each arm's spec on the first of these machines, or the reason why it is refused."""
    specs: dict[str, TrainingSpec] = {}
    placed: dict[str, Machines] = {}
    refused: dict[str, str] = {}
    warnings: list[str] = []
    for arm in arms:
        try:
            hosts = _hosts_of(arm, machines)
            machine = combined(hosts)
            _check_gpus(arm, machine)
            resolved = resolve(arm.choices, machine, preset)
        except TfdistError as error:
            refused[arm.name] = str(error)
        else:
            specs[arm.name] = resolved.spec
            placed[arm.name] = _with_slots(hosts, resolved.spec.workers)
            warnings += [f"{arm.name}: {text}" for text in resolved.warnings]
    return Arms(specs, refused, tuple(warnings), placed)


def _hosts_of(arm: Arm, machines: Machines) -> Machines:
    if arm.hosts > len(machines):
        available = f"{counted(len(machines), 'host')} {'is' if len(machines) == 1 else 'are'} available"
        raise TfdistError(f"the arm needs {arm.hosts} hosts, {available}: name more with --hosts or --hostfile")
    hosts = dict(list(machines.items())[: arm.hosts])
    return assign_slots(hosts, None, arm.choices.get("devices", 1)) if arm.hosts > 1 else hosts


def _with_slots(machines: Machines, workers: int) -> Machines:
    """Spread the workers evenly over the machines whose slots the user did not set."""
    if len(machines) == 1:
        return machines
    each = ceil(workers / len(machines))
    return {host: replace(machine, slots=host.slots or each) for host, machine in machines.items()}


def _check_gpus(arm: Arm, machine: Machine) -> None:
    """A machine with GPUs always trains on them, so an arm for the other kind of device is refused."""
    gpus = arm.choices.get("gpus")
    if gpus is True and not machine.gpus:
        raise TfdistError("the arm needs GPUs and this machine has none: run it on one that has")
    if gpus is False and machine.gpus:
        raise TfdistError("the arm is for CPUs and this machine has GPUs: hide them with CUDA_VISIBLE_DEVICES=-1")
