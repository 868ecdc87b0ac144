"""The user's choices -> a complete TrainingSpec: presets, defaults for this machine, and every check.

Nothing is started or written; the data set's metadata is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeVar

from tfdist.jobs.checks import check, check_length, check_strategy, warnings_of
from tfdist.jobs.exchange_checks import check_program
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine
from tfdist.launch.text import did_you_mean
from tfdist.models.datasets.table import SYNTHETIC, check_data, describe
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice, field_types
from tfdist.strategies.options import Communication, StrategyName, fix_of_choice, option_text

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {
        "alpha": 0.35, "image_size": 32, "batch_size": 32, "classes": 10, "bn_momentum": 0.9, "dataset": "synthetic",
        "steps": 30, "steps_per_window": 5, "meta_optimizer": False,
    },
    "cpu": {
        "alpha": 1.0, "image_size": 96, "batch_size": 16, "classes": 1000, "dataset": "synthetic", "steps": 50,
        "steps_per_window": 5,
    },
    "reference": {
        "alpha": 1.0, "image_size": 224, "batch_size": 64, "dataset": "tfds:cats_vs_dogs", "shuffle": 1024, "epochs": 5,
    },
}  # fmt: skip
"""`reference` is the published set-up: Adam 0.001, images scaled to 0..1, 5 epochs. The others fit a laptop."""

REAL_DATA_STEPS = {"smoke": 1200, "cpu": 1200}
"""Steps of these presets with a real data set: enough to learn digits, about a minute."""

Spec = TypeVar("Spec", bound=StrategyChoice)


@dataclass(frozen=True)
class Choice(Generic[Spec]):
    """A complete and checked spec, with what to tell the user about it."""

    spec: Spec
    notes: tuple[str, ...]
    """The decisions that the user left to tfdist, with their reasons."""
    warnings: tuple[str, ...]


def resolve(
    choices: Mapping[str, Any], machine: Machine, preset: str | None = None, base: TrainingSpec | None = None
) -> Choice[TrainingSpec]:
    """The built-in training that the choices describe on this machine.

    Args:
        choices: by the field names of TrainingSpec, and `global_batch_size`; None counts as not chosen.
        machine: the combined hosts.
        preset: None: that of `base`; without one, `reference` on a machine with GPUs, else `cpu`.
        base: has all values that neither the choices nor the preset set.

    Raises:
        TfdistError: a choice is invalid or does not work here.
    """
    chosen = _typed(choices)
    machine = machine.cut(chosen.get("logical_gpus", base and base.logical_gpus))
    chosen["strategy"], strategy_notes = _choose_strategy(chosen, machine, base)
    _check_exclusive(chosen)
    batch = chosen.pop("global_batch_size", None)
    preset_notes: tuple[str, ...] = ()
    if preset is None and base is None:
        preset, reason = ("reference", "GPUs found") if machine.gpus else ("cpu", "no GPU found")
        preset_notes = (f"preset {preset}: {reason}",)
    preset_values = {} if preset is None else _preset_values(preset, chosen)
    if base is not None:  # as long as it was, unless that was chosen
        preset_values = {name: value for name, value in preset_values.items() if name not in ("steps", "epochs")}
    defaults = {**(_default_counts(chosen, machine) if base is None else _values_of(base, machine)), **preset_values}
    length = {"steps", "epochs"} & chosen.keys()
    if base is not None and length:
        defaults["examples"] = None
    if base is not None and length == {"steps"}:
        defaults["epochs"] = None
    spec = TrainingSpec(**{**defaults, **chosen, "gpus": bool(machine.gpus)})
    check(spec, chosen, machine)
    if batch is not None:
        replicas = spec.replicas - spec.backup_workers
        share, rest = divmod(batch, replicas)
        if batch < 1 or rest:
            nearest = max(1, round(batch / replicas)) * replicas
            raise TfdistError(f"--global-batch-size {batch}: not divisible by {replicas} replicas; use {nearest}")
        spec = replace(spec, batch_size=share)
    spec, communication_notes = _with_communication(_with_data(spec, chosen, base), machine)
    return Choice(spec, preset_notes + strategy_notes + communication_notes, tuple(warnings_of(spec, machine)))


def resolve_strategy(
    choices: Mapping[str, Any], machine: Machine, base: StrategyChoice | None = None
) -> Choice[StrategyChoice]:
    """The strategy that the choices describe, for a custom program. Cores are not pinned unless chosen.

    What is not chosen is as in `base`, if there is one and its strategy is not replaced.

    Raises:
        TfdistError: a choice is invalid or does not work here.
    """
    chosen = _typed(choices)
    if base is not None and chosen.get("strategy", base.strategy) != base.strategy:
        base = None
    machine = machine.cut(chosen.get("logical_gpus", base and base.logical_gpus))
    chosen["strategy"], notes = _choose_strategy(chosen, machine, base)
    if base is None:
        defaults = {"cores_per_device": None, **_default_counts(chosen, machine)}
    else:
        defaults = _values_of(base, machine)
    choice = StrategyChoice(**{**defaults, **chosen, "gpus": bool(machine.gpus)})
    check_strategy(choice, chosen, machine)
    check_program(choice)
    choice, communication_notes = _with_communication(choice, machine)
    return Choice(choice, notes + communication_notes, tuple(warnings_of(choice, machine)))


_TYPES = field_types(TrainingSpec)
_AT_RUN_TIME = "knows its number of replicas only at run time"


def _typed(choices: Mapping[str, Any]) -> dict[str, Any]:
    """The choices that are not None, each in the type of its field."""
    typed = {name: value for name, value in choices.items() if value is not None}
    for name, value in typed.items():
        kind = _TYPES.get(name, object)
        if kind is float:
            typed[name] = float(value)
        elif issubclass(kind, Enum):
            try:
                typed[name] = kind(str(value))
            except ValueError:
                hint = fix_of_choice(name, str(value), map(str, kind))
                raise TfdistError(f"{option_text(name, value)}: {hint}") from None
    return typed


def _choose_strategy(
    chosen: Mapping[str, Any], machine: Machine, base: StrategyChoice | None
) -> tuple[StrategyName, tuple[str, ...]]:
    name = chosen.get("strategy", StrategyName.AUTO if base is None else base.strategy)
    if name is not StrategyName.AUTO:
        return name, ()
    devices, workers, ps = chosen.get("devices", len(machine.gpus)), chosen.get("workers", 1), chosen.get("ps")
    instances = devices > 1 and machine.gpus_per_process < len(machine.gpus)
    rules = (
        (ps, StrategyName.PARAMETER_SERVER, f"--ps {ps}"),
        (machine.hosts > 1, StrategyName.MULTI_WORKER, f"{machine.hosts} hosts"),
        (workers != 1, StrategyName.MULTI_WORKER, f"--workers {workers}"),
        (instances, StrategyName.MULTI_WORKER, f"{devices} MIG instances, of which a process can use one"),
        (devices > 1, StrategyName.MIRRORED, f"{devices} devices on one host"),
        (True, StrategyName.ONE_DEVICE, "one host, one device"),
    )
    name, reason = next((name, reason) for applies, name, reason in rules if applies)
    return name, (f"strategy {name}: {reason}",)


def _default_counts(chosen: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """Workers, parameter servers and devices, unless chosen: all GPUs, or 2 CPU devices."""
    strategy = CATALOG[chosen["strategy"]]
    devices = len(machine.gpus) or 2
    counts: dict[str, Any] = {"workers": 1, "ps": 0, "devices": 1}
    if strategy.many_processes:
        counts["workers"] = machine.slots or max(1, devices // max(1, chosen.get("devices", 1)))
    elif "devices" in strategy.options:
        counts["devices"] = machine.gpus_per_process or devices
    if "ps" in strategy.options:
        counts["ps"] = strategy.least_ps
    if not strategy.pins_cores:
        counts["cores_per_device"] = None
    return counts


def _with_communication(choice: Spec, machine: Machine) -> tuple[Spec, tuple[str, ...]]:
    """The choice with `auto` decided for workers with GPUs, where TensorFlow's own is a ring over gRPC too; a note."""
    undecided = choice.communication is Communication.AUTO and CATALOG[choice.strategy].all_reduce == "communication"
    if not undecided or not choice.gpus:
        return choice, ()
    if choice.logical_gpus is not None:
        decided = Communication.RING
        reason = "NCCL accepts each physical GPU once, not its parts"
    elif any(" MIG " in name for name in machine.gpus):
        decided = Communication.RING
        reason = "NCCL does not connect MIG instances"
    else:
        decided, reason = Communication.NCCL, "all workers have GPUs"
    return replace(choice, communication=decided), (f"communication {decided}: {reason}",)


def _check_exclusive(chosen: Mapping[str, Any]) -> None:
    if "global_batch_size" in chosen and not CATALOG[chosen["strategy"]].replicas_known:
        option = f"--global-batch-size {chosen['global_batch_size']}"
        raise TfdistError(f"{option}: {chosen['strategy']} {_AT_RUN_TIME}; use --batch-size, which is per replica")
    for pair in (("global_batch_size", "batch_size"), ("steps", "epochs")):
        if chosen.keys() >= set(pair):
            both = " and ".join(option_text(name, chosen[name]) for name in pair)
            raise TfdistError(f"{both}: use only one of them")


def _values_of(base: StrategyChoice, machine: Machine) -> dict[str, Any]:
    values = {**vars(base)}
    if base.gpus != bool(machine.gpus):
        values["communication"] = Communication.AUTO  # the other one was decided for GPUs, or without
    return values


def _preset_values(preset: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The preset, with its length adapted: --steps and --epochs replace it, and epochs need real data."""
    if preset not in PRESETS:
        raise TfdistError(f"--preset {preset}: {did_you_mean(preset, PRESETS)}")
    values = dict(PRESETS[preset])
    if "steps" in chosen or "epochs" in chosen or chosen.get("dataset", values["dataset"]) == SYNTHETIC:
        values.pop("epochs", None)
    elif preset in REAL_DATA_STEPS:
        values["steps"] = REAL_DATA_STEPS[preset]
    return values


def _with_data(spec: TrainingSpec, chosen: Mapping[str, Any], base: TrainingSpec | None) -> TrainingSpec:
    """The spec with the data set's number of classes, the steps of --epochs, and whether to evaluate."""
    data = describe(spec.dataset, spec.data_dir)
    classes = chosen.get("classes", data.classes or spec.classes)
    evaluate = base.evaluate if base is not None else data.test_examples > 0
    spec = replace(spec, classes=classes, evaluate=chosen.get("evaluate", evaluate))
    check_data(spec, data)
    if spec.epochs is None:
        return spec
    if data.train_examples is None:
        raise TfdistError(f"--epochs {spec.epochs}: {spec.dataset} data is endless; use --steps")
    if not CATALOG[spec.strategy].replicas_known:
        raise TfdistError(f"--epochs {spec.epochs}: {spec.strategy} {_AT_RUN_TIME}; use --steps")
    scheduled = 1 if spec.synchronous else spec.workers  # asynchronous: a step is one worker's batch
    spec = replace(spec, steps=spec.epochs * (data.train_examples // spec.global_batch_size) * scheduled)
    check_length(spec)
    return spec
