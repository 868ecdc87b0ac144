"""The arms of a suite on these machines: a planned job each, or the reason why the hardware cannot run it."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from pathlib import Path

from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.command import check_imports
from tfdist.jobs.choice import choose
from tfdist.jobs.plan import Planned, plan
from tfdist.jobs.request import Request
from tfdist.launch.errors import MissingHardwareError, TfdistError
from tfdist.launch.job import program_of
from tfdist.launch.machine import Machine, Machines, assign_slots, combined
from tfdist.launch.program_copy import ProgramCopy
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
    copy: ProgramCopy | None = None
    """That folder, if tasks run in copies."""


@dataclass(frozen=True)
class Arms:
    """The arms that can run on these machines, and those that cannot; mappings are by arm name."""

    plans: Mapping[str, Planned]
    refused: Mapping[str, str]
    """The reason, one sentence."""
    warnings: tuple[str, ...]
    chosen: str | None = None
    """The baseline that the suite names."""
    versions: Mapping[str, Version] = field(default_factory=dict)
    """Versions of the arms that run another one than that in the current folder."""

    def with_version(self, version: Version, arms: Collection[str]) -> "Arms":
        """The arms, of which these run another version of the user's program.

        Raises:
            TfdistError: it cannot run there.
        """
        plans = dict(self.plans)
        for arm in plans.keys() & set(arms):
            request = replace(plans[arm].request, cwd=str(version.folder), copy=version.copy)
            plans[arm] = plan(request, plans[arm].machines)
        return replace(self, plans=plans, versions=dict.fromkeys(arms, version))

    @cached_property
    def specs(self) -> Mapping[str, StrategyChoice]:
        """A TrainingSpec for the built-in training."""
        return {arm: planned.spec for arm, planned in self.plans.items()}

    @cached_property
    def machines(self) -> Mapping[str, Machines]:
        """The hosts of each arm that can run, with slots for its workers."""
        return {arm: planned.machines for arm, planned in self.plans.items()}

    @cached_property
    def commands(self) -> Mapping[str, tuple[str, ...]]:
        """Commands of the arms that run the user's own program; see `program_of`."""
        return {arm: planned.request.command for arm, planned in self.plans.items() if planned.request.own}

    def baseline(self, arms: Iterable[str]) -> str:
        """The chosen one of these, else the one-device arm, else the first: it connects groups of arms.

        Empty without arms.
        """
        arms = list(arms)
        if self.chosen in arms:
            return self.chosen
        one = (arm for arm in arms if self.specs[arm].strategy is StrategyName.ONE_DEVICE)
        return next(one, next(iter(arms), ""))


def resolve_arms(
    arms: Sequence[Arm],
    machines: Machines,
    preset: str | None,
    baseline: str | None = None,
    copy: ProgramCopy | None = None,
) -> Arms:
    """Each arm planned on the first of these machines, or the reason why they lack what it needs.

    Args:
        arms: of a suite.
        machines: the hosts.
        preset: of the built-in training.
        baseline: the arm that the suite names.
        copy: the folder in whose copy programs of the user run.

    Raises:
        TfdistError: an arm that no machine could run.
    """
    plans: dict[str, Planned] = {}
    refused: dict[str, str] = {}
    for arm in arms:
        try:
            plans[arm.name] = _plan(arm, machines, preset, copy)
        except MissingHardwareError as error:
            refused[arm.name] = str(error)
        except TfdistError as error:
            raise TfdistError(f"arm {arm.name!r}: {error}") from None
    warnings = (f"{arm}: {text}" for arm, planned in plans.items() for text in planned.warnings)
    return Arms(plans, refused, tuple(warnings), baseline)


def _plan(arm: Arm, machines: Machines, preset: str | None, copy: ProgramCopy | None) -> Planned:
    """The job of an arm, whose workers are spread evenly over the hosts whose slots the user did not set."""
    hosts = _hosts_of(arm, machines)
    _check_devices(arm, combined(hosts), hosts)
    request = _request(arm, hosts, preset, copy)
    if arm.hosts == 1:
        return plan(request, hosts)
    workers = choose(request, hosts).spec.workers
    if workers < arm.hosts:
        raise TfdistError(f"hosts = {arm.hosts} with {counted(workers, 'worker')}: give each host a worker")
    each = ceil(workers / len(hosts))
    placed = {host: replace(machine, slots=host.slots or each) for host, machine in hosts.items()}
    return plan(request.choosing(workers=workers), placed)


def _request(arm: Arm, hosts: Machines, preset: str | None, copy: ProgramCopy | None) -> Request:
    if not arm.command:
        return Request({**arm.choices, "preset": preset}, paced=True)
    check_imports(program_of(arm.command, {}, hosts, copy), hosts)
    # a core for each device, as in the built-in training: else arms of one device would use all cores
    pins = CATALOG[arm.choices["strategy"]].pins_cores and not combined(hosts).gpus
    choices = {"cores_per_device": 1, **arm.choices} if pins else arm.choices
    return Request(choices, arm.command, paced=True, copy=copy)


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
