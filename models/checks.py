"""What is refused before anything starts, and what is only warned of. Each refusal is one sentence with the way out."""

from collections.abc import Mapping
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import (
    CATALOG,
    Communication,
    CrossDevice,
    Refusal,
    StrategyName,
    devices_refusal,
    keras_refusal,
    precision_refusal,
)
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.partitioner import parse_partitioner

AT_LEAST = {
    "workers": 1, "ps": 0, "devices": 1, "cores_per_device": 1, "packs": 1, "bytes_per_pack": 1, "classes": 2,
    "batch_size": 1, "steps": 1, "epochs": 1, "steps_per_window": 1, "warmup_steps": 0, "shuffle": 1, "seed": 0,
    "image_size": 32,
}  # fmt: skip
MOST_SEED = 2**32 - 1
WHY = {"image_size": " (MobileNetV2 halves the image five times)"}
ALPHAS = (0.35, 0.5, 0.75, 1.0, 1.3, 1.4)
STRATEGY_FIELDS = (
    "workers", "ps", "devices", "communication", "cross_device", "packs", "bytes_per_pack", "timeout_collective_s",
    "variable_partitioner", "placement",
)  # fmt: skip
"""Fields that belong to some strategies only (`Strategy.options`)."""


def option(field: str) -> str:
    """The command line's name of a field."""
    return "--" + field.removesuffix("_s").replace("_", "-")


def check(spec: TrainingSpec, chosen: Mapping[str, Any], machine: Machine) -> None:
    """Refuse what cannot work, or would have no effect.

    Args:
        spec: every value, chosen or by default.
        chosen: those that the user gave.

    Raises:
        TfdistError: the first thing found.
    """
    check_ranges(spec)
    check_strategy(spec, chosen, machine)
    check_combinations(spec)
    check_effect(spec, chosen)
    if "steps" in chosen or "warmup_steps" in chosen:
        check_length(spec)


def check_strategy(choice: StrategyChoice, chosen: Mapping[str, Any], machine: Machine) -> None:
    """As `check`, for a program whose training we do not know."""
    check_least(choice)
    if choice.timeout_collective_s is not None and not choice.timeout_collective_s > 0:
        raise TfdistError(f"--timeout-collective {choice.timeout_collective_s}: it must be more than 0 seconds")
    parse_partitioner(choice.variable_partitioner)
    check_options_belong(choice, chosen)
    check_cross_device(choice, machine)
    check_devices(choice, machine)
    check_worker_devices(choice)


def check_ranges(spec: TrainingSpec) -> None:
    """Numbers in their ranges, names among the known ones."""
    check_least(spec)
    if spec.seed > MOST_SEED:
        raise TfdistError(f"--seed {spec.seed}: NumPy takes seeds up to {MOST_SEED}")
    for field, known in (("alpha", ALPHAS),):
        if getattr(spec, field) not in known:
            raise TfdistError(f"{option(field)} {getattr(spec, field)}: choose one of {', '.join(map(str, known))}")
    if not 0.0 <= spec.bn_momentum < 1.0:
        raise TfdistError(f"--bn-momentum {spec.bn_momentum}: it must be at least 0 and less than 1")
    if not spec.learning_rate > 0:
        raise TfdistError(f"--learning-rate {spec.learning_rate}: it must be more than 0")


def check_least(choice: StrategyChoice) -> None:
    """Whole numbers that are large enough."""
    for field, least in AT_LEAST.items():
        value = getattr(choice, field, None)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise TfdistError(
                f"{option(field)} {value}: it must be a whole number of at least {least}{WHY.get(field, '')}"
            )


def check_options_belong(spec: StrategyChoice, chosen: Mapping[str, Any]) -> None:
    """An option that the strategy would ignore is refused, unless it says what holds anyway."""
    strategy = CATALOG[spec.strategy]
    for field in STRATEGY_FIELDS:
        if option(field) in strategy.options or field not in chosen:
            continue
        if str(chosen[field]) != str(getattr(StrategyChoice, field)):
            owners = ", ".join(row.name for row in CATALOG.values() if option(field) in row.options)
            flag = f"{option(field)} {chosen[field]}"
            raise TfdistError(f"{flag} has no effect under --strategy {spec.strategy}: it belongs to {owners}")
    if spec.strategy is StrategyName.PARAMETER_SERVER and spec.ps == 0:
        raise TfdistError("--ps 0: parameter-server keeps its variables on parameter servers; use --ps 1 or more")


def check_cross_device(spec: StrategyChoice, machine: Machine) -> None:
    """NCCL needs GPUs, and packs need an all-reduce that packs."""
    nccl = [
        flag
        for flag, wanted in (
            ("--communication nccl", spec.communication is Communication.NCCL),
            ("--cross-device nccl", spec.cross_device is CrossDevice.NCCL),
        )
        if wanted
    ]
    if nccl and not machine.gpus:
        instead = "ring" if "communication" in nccl[0] else "auto, hierarchical-copy or reduction-to-one"
        raise TfdistError(f"{nccl[0]} needs GPUs and there are none: use {instead}")
    if spec.packs is not None and spec.cross_device not in (CrossDevice.NCCL, CrossDevice.HIERARCHICAL_COPY):
        raise TfdistError(
            f"--packs {spec.packs} needs --cross-device nccl or hierarchical-copy: {spec.cross_device} packs nothing"
        )


def check_devices(spec: StrategyChoice, machine: Machine) -> None:
    """One process is on one host. A GPU is not shared between replicas; cores may be (that is a warning)."""
    if machine.hosts > 1 and not CATALOG[spec.strategy].many_processes:
        raise TfdistError(
            f"--strategy {spec.strategy} is one process, and {machine.hosts} hosts were given: "
            f"use --strategy multiworker, or choose one host with --include"
        )
    wanted = spec.replicas
    if machine.gpus and wanted > len(machine.gpus):
        raise TfdistError(
            f"{wanted} devices ({spec.workers} workers x {spec.devices}) are more than the {len(machine.gpus)} GPUs "
            f"that are there: use fewer --workers or --devices"
        )


def check_combinations(spec: TrainingSpec) -> None:
    """The combinations of strategy, Keras, API and precision that TensorFlow cannot train."""
    keras = f"--keras {spec.keras}"
    trains = keras_refusal(spec.strategy, spec.cross_device, spec.keras, spec.api)
    refuse(trains, f"{keras} --api {spec.api} --strategy {spec.strategy}")
    scales = precision_refusal(spec.strategy, spec.keras, spec.precision, spec.replicas)
    refuse(scales, f"{keras} --precision {spec.precision}")
    check_worker_devices(spec)


def check_worker_devices(spec: StrategyChoice) -> None:
    """Some strategies use one CPU device of each process, however many there are."""
    refuse(devices_refusal(spec.strategy, spec.devices, spec.gpus), f"--devices {spec.devices}")


def refuse(refusal: Refusal | None, what: str) -> None:
    """Raise the refusal, if it is one."""
    if refusal is not None:
        raise TfdistError(f"{what}: {refusal.reason}; {refusal.instead}")


def check_effect(spec: TrainingSpec, chosen: Mapping[str, Any]) -> None:
    """Options that the chosen model, data or device would ignore."""
    ignored = (
        ("bn_momentum", "--model tiny", spec.model == "tiny"),
        ("shuffle", "--dataset synthetic", spec.dataset == "synthetic"),
        ("data_dir", f"--dataset {spec.dataset}", not spec.dataset.startswith("tfds:")),
        ("cores_per_device", "a GPU", spec.gpus),
    )
    for field, what, without_effect in ignored:
        if without_effect and field in chosen:
            raise TfdistError(f"{option(field)} {chosen[field]} has no effect with {what}: leave it away")


def check_length(spec: TrainingSpec) -> None:
    """As many steps must be left to be timed as are warm-up."""
    if spec.steps < max(1, 2 * spec.warmup_steps):
        raise TfdistError(
            f"--steps {spec.steps} leaves too few to time after {spec.warmup_steps} warm-up steps: "
            f"use --steps {2 * spec.warmup_steps} or more, or --warmup-steps 0"
        )


def cores_warnings(choice: StrategyChoice, machine: Machine) -> tuple[str, ...]:
    """Devices that share cores."""
    cores = choice.replicas * (choice.cores_per_device or 0)
    if machine.gpus or cores <= len(machine.cores):
        return ()
    return (
        f"{choice.replicas} devices of {choice.cores_per_device} core(s) share {len(machine.cores)} cores: "
        f"they slow each other down, so do not read scaling from this run",
    )


def warnings_of(spec: TrainingSpec, machine: Machine) -> tuple[str, ...]:
    """What works but will surprise."""
    slow = "--xla on a CPU is about 100 times slower for MobileNetV2 (its depthwise gradients)"
    return (*cores_warnings(spec, machine), *([slow] if spec.xla and not machine.gpus else []))
