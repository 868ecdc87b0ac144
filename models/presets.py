"""From what a user chose to a complete TrainingSpec: presets, defaults for this machine, and every check. Pure but for
the look whether the data set is there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine
from tfdist.launch.text import did_you_mean
from tfdist.models.checks import check, check_length, check_strategy, cores_warnings, warnings_of
from tfdist.models.datasets.table import describe
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG, StrategyName
from tfdist.strategies.choice import StrategyChoice, closed_choices

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {
        "alpha": 0.35, "image_size": 32, "batch_size": 32, "classes": 10, "bn_momentum": 0.9, "dataset": "synthetic",
        "steps": 30, "steps_per_window": 5,
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
"""With a real data set those presets train for so many steps: enough for digits to be learnt, about a minute."""


Choice = TypeVar("Choice", bound=StrategyChoice)


@dataclass(frozen=True)
class ResolvedStrategy:
    """The strategy for a program of the user's own, and what the user should be told about it."""

    choice: StrategyChoice
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Resolved:
    """A complete spec, and what the user should be told about it."""

    spec: TrainingSpec
    preset: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def resolve(choices: Mapping[str, Any], machine: Machine, preset: str | None = None) -> Resolved:
    """The training that these choices mean on this machine.

    Args:
        choices: TrainingSpec's field names, and `global_batch_size`; None counts as not chosen.
        preset: its name; None: `reference` where a GPU is there, else `cpu`.

    Raises:
        TfdistError: anything a user can get wrong, one sentence each.
    """
    chosen = {name: value for name, value in choices.items() if value is not None}
    preset, why = choose_preset(preset, machine)
    notes = [f"preset {preset}: {why}"]
    chosen["strategy"], why = choose_strategy(chosen, machine)
    notes.append(f"strategy {chosen['strategy']}: {why}")
    batch = chosen.pop("global_batch_size", None)
    if batch is not None and chosen["strategy"] is StrategyName.TPU:
        raise TfdistError(
            f"--global-batch-size {batch}: how many cores share it is known only when the TPU has answered; "
            f"use --batch-size, which is per core"
        )
    if batch is not None and "batch_size" in chosen:
        raise TfdistError(f"--global-batch-size {batch} and --batch-size {chosen['batch_size']}: give one of them")
    base = with_length(dict(PRESETS[preset]), chosen, preset)
    values = {**base, **devices_by_default(chosen, machine), **chosen, "gpus": bool(machine.gpus)}
    spec = made_of(values, TrainingSpec)
    check(spec, chosen, machine)
    if batch is not None:
        spec = replace(spec, batch_size=per_replica(batch, spec))
    return Resolved(fit_to_data(spec, chosen), preset, tuple(notes), warnings_of(spec, machine))


def resolve_strategy(choices: Mapping[str, Any], machine: Machine) -> ResolvedStrategy:
    """As `resolve`, for a program that brings its own model and data: only what concerns strategy and Keras.

    Cores are left alone unless the user says how many a device has.
    """
    chosen = {name: value for name, value in choices.items() if value is not None}
    chosen["strategy"], why = choose_strategy(chosen, machine)
    values = {"cores_per_device": None, **devices_by_default(chosen, machine), **chosen, "gpus": bool(machine.gpus)}
    choice = made_of(values, StrategyChoice)
    check_strategy(choice, chosen, machine)
    return ResolvedStrategy(choice, (f"strategy {choice.strategy}: {why}",), cores_warnings(choice, machine))


def choose_preset(preset: str | None, machine: Machine) -> tuple[str, str]:
    """The preset's name, and why it is that one."""
    if preset is None:
        return ("reference", "a GPU is there") if machine.gpus else ("cpu", "no GPU is there")
    if preset not in PRESETS:
        raise TfdistError(f"--preset {preset}: {did_you_mean(preset, PRESETS)}")
    return preset, "as asked"


def choose_strategy(chosen: Mapping[str, Any], machine: Machine) -> tuple[StrategyName, str]:
    """The strategy, and why it is that one."""
    name = spec_choice("strategy", chosen.get("strategy", StrategyName.AUTO))
    if name is not StrategyName.AUTO:
        return StrategyName(name), "as asked"
    if chosen.get("ps"):
        return StrategyName.PARAMETER_SERVER, f"--ps {chosen['ps']}"
    if machine.hosts > 1:
        return StrategyName.MULTI_WORKER, f"{machine.hosts} hosts"
    if chosen.get("workers", 1) != 1:
        return StrategyName.MULTI_WORKER, f"--workers {chosen['workers']}"
    if chosen.get("devices", len(machine.gpus)) > 1:
        return StrategyName.MIRRORED, f"{chosen.get('devices', len(machine.gpus))} devices in one host"
    return StrategyName.ONE_DEVICE, "one host, one device"


def devices_by_default(chosen: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """How many workers, parameter servers and devices, where the user does not say: all GPUs, or 2 on a CPU.

    A TPU's host does not compute, so its cores are left alone.
    """
    strategy = CATALOG[chosen["strategy"]]
    several = len(machine.gpus) or 2
    defaults: dict[str, Any] = {"workers": 1, "ps": 0, "devices": 1}
    if strategy.many_processes:
        defaults["workers"] = machine.slots or max(1, several // max(1, chosen.get("devices", 1)))
    elif "--devices" in strategy.options:
        defaults["devices"] = several
    if "--ps" in strategy.options:
        defaults["ps"] = 1
    if strategy.name is StrategyName.TPU:
        defaults["cores_per_device"] = None
    return defaults


def with_length(base: dict[str, Any], chosen: Mapping[str, Any], preset: str) -> dict[str, Any]:
    """The preset with its length made to fit: the user's --steps or --epochs replace it; epochs need real data."""
    if "steps" in chosen and "epochs" in chosen:
        raise TfdistError(f"--steps {chosen['steps']} and --epochs {chosen['epochs']}: give one of them")
    synthetic = chosen.get("dataset", base["dataset"]) == "synthetic"
    if "steps" in chosen or "epochs" in chosen or synthetic:
        base.pop("epochs", None)
    elif preset in REAL_DATA_STEPS:
        base["steps"] = REAL_DATA_STEPS[preset]
    return base


_CHOICES = closed_choices(TrainingSpec)


def spec_choice(name: str, value: Any) -> Any:
    """`value` as the field's type, if it is a closed choice.

    Raises:
        TfdistError: it is none of the choices.
    """
    if name not in _CHOICES:
        return value
    try:
        return _CHOICES[name](str(value))
    except ValueError:
        hint = did_you_mean(str(value), map(str, _CHOICES[name]))
        raise TfdistError(f"--{name.replace('_', '-')} {value}: {hint}") from None


def made_of(values: Mapping[str, Any], kind: type[Choice]) -> Choice:
    """The values as a StrategyChoice or a TrainingSpec, each converted to its field's type."""
    converted = {}
    for field in fields(kind):
        if field.name in values:
            value = spec_choice(field.name, values[field.name])
            convert: Callable[[Any], Any] = float if field.type is float else lambda same: same
            converted[field.name] = convert(value)
    return kind(**converted)


def per_replica(batch: int, spec: TrainingSpec) -> int:
    """The share of one replica in a global batch.

    Raises:
        TfdistError: it does not divide.
    """
    share, rest = divmod(batch, spec.replicas)
    if batch < 1 or rest:
        nearest = max(1, round(batch / spec.replicas)) * spec.replicas
        raise TfdistError(f"--global-batch-size {batch} does not divide by {spec.replicas} replicas: use {nearest}")
    return share


def fit_to_data(spec: TrainingSpec, chosen: Mapping[str, Any]) -> TrainingSpec:
    """The spec with what the data set decides: the number of classes, steps for epochs, and whether to evaluate.

    Raises:
        TfdistError: the data set is not there, has other classes, or is smaller than one global batch.
    """
    data = describe(spec.dataset, spec.data_dir)
    if data.classes is not None:
        if chosen.get("classes", data.classes) != data.classes:
            raise TfdistError(f"--classes {chosen['classes']}: {spec.dataset} has {data.classes}; leave --classes away")
        spec = replace(spec, classes=data.classes)
    if spec.evaluate and not data.test_examples:
        raise TfdistError(f"--evaluate: {spec.dataset} has no held-out examples; leave it away or use digits")
    if chosen.get("evaluate") is None:
        spec = replace(spec, evaluate=data.test_examples > 0)
    if data.train_examples is None:
        if spec.epochs is not None:
            raise TfdistError(f"--epochs {spec.epochs}: {spec.dataset} data has no end; use --steps")
        return spec
    in_an_epoch = data.train_examples // spec.global_batch_size
    if in_an_epoch == 0:
        raise TfdistError(
            f"{spec.dataset} has {data.train_examples} training examples, less than one global batch of "
            f"{spec.global_batch_size}: use a smaller --batch-size"
        )
    if spec.epochs is None:
        return spec
    if spec.strategy is StrategyName.TPU:
        raise TfdistError(
            f"--epochs {spec.epochs}: how many cores share an epoch is known only when the TPU has answered; "
            f"use --steps"
        )
    share = 1 if CATALOG[spec.strategy].synchronous else spec.workers
    spec = replace(spec, steps=spec.epochs * in_an_epoch * share)
    check_length(spec)
    return spec
