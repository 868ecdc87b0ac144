"""The arms of a suite on these machines: a complete spec each, or the reason why the hardware cannot run it."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.command import check_imports
from tfdist.jobs.plan import shape_of_command
from tfdist.jobs.presets import resolve, resolve_strategy
from tfdist.launch.errors import MissingHardwareError, TfdistError
from tfdist.launch.job import program_of
from tfdist.launch.machine import Machine, Machines, assign_slots, combined
from tfdist.launch.text import counted
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName


@dataclass(frozen=True)
class Version:
    """Another version of the user's program."""

    folder: Path
    """The working directory of its tasks."""
    words: str
    """How a shell gets there, for records: `cd ../before && `."""


@dataclass(frozen=True)
class Arms:
    """The arms that can run on these machines, and those that cannot; mappings are by arm name."""

    specs: Mapping[str, StrategyChoice]
    """A TrainingSpec for the built-in training."""
    refused: Mapping[str, str]
    """The reason, one sentence."""
    warnings: tuple[str, ...]
    machines: Mapping[str, Machines]
    """The hosts of each arm that can run, with slots for its workers."""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Commands of the arms that run the user's own program; see `program_of`."""
    chosen: str | None = None
    """The baseline that the suite names."""
    versions: Mapping[str, Version] = field(default_factory=dict)
    """Versions of the arms that run another one than that in the current folder."""

    def baseline(self, arms: Iterable[str]) -> str:
        """The chosen one of these, else the one-device arm, else the first: it connects groups of arms.

        Empty without arms.
        """
        arms = list(arms)
        if self.chosen in arms:
            return self.chosen
        one = (arm for arm in arms if self.specs[arm].strategy is StrategyName.ONE_DEVICE)
        return next(one, next(iter(arms), ""))


def resolve_arms(arms: Sequence[Arm], machines: Machines, preset: str | None, baseline: str | None = None) -> Arms:
    """Each arm's spec on the first of these machines, or the reason why they lack what it needs.

    Raises:
        TfdistError: an arm that no machine could run.
    """
    specs: dict[str, StrategyChoice] = {}
    placed: dict[str, Machines] = {}
    refused: dict[str, str] = {}
    warnings: list[str] = []
    for arm in arms:
        try:
            hosts = _hosts_of(arm, machines)
            spec, texts = _resolve(arm, hosts, preset)
            workers = spec.workers
            if workers < arm.hosts:
                raise TfdistError(f"hosts = {arm.hosts} with {counted(workers, 'worker')}: give each host a worker")
        except MissingHardwareError as error:
            refused[arm.name] = str(error)
        except TfdistError as error:
            raise TfdistError(f"arm {arm.name!r}: {error}") from None
        else:
            specs[arm.name] = spec
            if len(hosts) > 1:  # spread the workers evenly over those whose slots the user did not set
                each = ceil(workers / len(hosts))
                hosts = {host: replace(machine, slots=host.slots or each) for host, machine in hosts.items()}
            placed[arm.name] = hosts
            warnings += [f"{arm.name}: {text}" for text in texts]
    commands = {arm.name: arm.command for arm in arms if arm.command and arm.name in specs}
    return Arms(specs, refused, tuple(warnings), placed, commands, baseline)


def _resolve(arm: Arm, hosts: Machines, preset: str | None) -> tuple[StrategyChoice, tuple[str, ...]]:
    """The spec of an arm, and warnings about it."""
    machine = combined(hosts)
    _check_devices(arm, machine, hosts)
    if not arm.command:
        built_in = resolve(arm.choices, machine, preset)
        return built_in.spec, built_in.warnings
    check_imports(program_of(arm.command, {}, hosts), hosts)
    # a core for each device, as in the built-in training: else arms of one device would use all cores
    pins = CATALOG[arm.choices["strategy"]].pins_cores and not machine.gpus
    choices = {"cores_per_device": 1, **arm.choices} if pins else arm.choices
    resolved = resolve_strategy(choices, machine)
    shape_of_command(resolved.spec, arm.command)
    return resolved.spec, resolved.warnings


def _hosts_of(arm: Arm, machines: Machines) -> Machines:
    if arm.hosts > len(machines):
        available = f"{counted(len(machines), 'host')} {'is' if len(machines) == 1 else 'are'} available"
        fix = "name more with --hosts or --hostfile"
        raise MissingHardwareError(f"the arm needs {arm.hosts} hosts, {available}: {fix}")
    hosts = dict(list(machines.items())[: arm.hosts])
    return assign_slots(hosts, None, arm.choices.get("devices", 1)) if arm.hosts > 1 else hosts


def _check_devices(arm: Arm, machine: Machine, hosts: Machines) -> None:
    """A machine with GPUs always trains on them, so an arm for the other kind of device is refused."""
    gpus = arm.choices.get("gpus")
    if gpus is True and not machine.gpus:
        raise MissingHardwareError("the arm needs GPUs and this machine has none: run it on one that has")
    if gpus is False and machine.gpus:
        fix = "hide them with CUDA_VISIBLE_DEVICES=-1"
        raise MissingHardwareError(f"the arm is for CPUs and this machine has GPUs: {fix}")
    files = CATALOG[arm.choices["strategy"]].device_files
    local = all(host.local for host in hosts)
    if files and local and not os.environ.get("TPU_NAME") and not any(Path("/dev", file).exists() for file in files):
        raise MissingHardwareError("the arm needs a TPU and this machine has none: run it on a TPU VM, or set TPU_NAME")
