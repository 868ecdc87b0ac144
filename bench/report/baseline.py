"""The baseline of an arm: the chosen one, or the one-device arm of the most nearly same work; comparisons. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tfdist.bench.report.arm_records import ArmRecords, batches, devices_of
from tfdist.bench.statistics import Comparison, Interval, Statistics
from tfdist.models.record import Record
from tfdist.models.throughput import exchange
from tfdist.strategies.catalog import Exchange
from tfdist.strategies.options import StrategyName


@dataclass(frozen=True)
class VersusBaseline:
    """An arm compared with one baseline."""

    label: str
    """The baseline's `ArmRow.label`."""
    comparison: Comparison
    devices: float
    """The arm's number of devices over the baseline's."""
    per_device: float
    """The baseline's images/s per device."""
    differences: tuple[str, ...]
    """Differences as in `baseline.differences`."""

    @property
    def efficiency(self) -> float:
        """Throughput per device over the baseline's; 1.0 is ideal."""
        return self.comparison.ratio / self.devices

    @property
    def efficiency_interval(self) -> Interval | None:
        """The confidence interval of `efficiency`."""
        limits = self.comparison.interval
        return replace(limits, low=limits.low / self.devices, high=limits.high / self.devices) if limits else None


Baseline = Literal["one device", "independent"]

_WORK = (
    "model", "alpha", "image_size", "classes", "bn_momentum", "dataset", "optimizer", "learning_rate", "precision",
    "keras", "api", "xla", "meta_optimizer", "gpus", "cores_per_device", "command",
)  # fmt: skip
"""Fields of a spec that define the work; the others define how it is distributed."""
_MACHINE = ("cpu", "cores", "gpus", "memory_bytes")
"""Keys of Record.hardware that distinguish machines."""


def find_baselines(
    arms: Sequence[ArmRecords], which: Baseline
) -> Iterator[tuple[ArmRecords, ArmRecords, tuple[str, ...]]]:
    """The measured arms whose name is true that have a baseline, each with it and with their `differences`.

    `one device` suits every arm, and is the folder's chosen baseline if it has one; `independent` must have as many
    devices on as many hosts. The one with the fewest differences, then the first; of arms on one device the first.
    Turns of other folders did not alternate with the arm's: none of those.
    """
    candidates: dict[tuple[Any, ...], list[ArmRecords]] = {}
    # of a sweep over 1,500 arms each finds the one of its own work without a search
    first_of: dict[tuple[Any, ...], int] = {}
    arms = [arm for arm in arms if arm.measured and not arm.refutation]
    for arm in arms:
        if _can_be(arm, which):
            found = candidates.setdefault(_size(arm, which), [])
            for key in _keys(arm, which):
                first_of.setdefault(key, len(found))
            found.append(arm)
    for arm in arms:
        if found := candidates.get(_size(arm, which), []):
            record = arm.measured[0]
            equal = [first_of[key] for key in _keys(arm, which) if key in first_of]
            if which == "one device" and _can_be(arm, which):
                baseline = found[0]
            elif equal:
                baseline = found[min(equal)]
            else:
                baseline = min(found, key=lambda other: len(differences(record, other.measured[0])))
            yield arm, baseline, differences(record, baseline.measured[0])


def _can_be(arm: ArmRecords, which: Baseline) -> bool:
    if which == "one device":
        return arm.strategy is StrategyName.ONE_DEVICE if arm.baseline is None else arm.arm == arm.baseline
    return exchange(arm.spec) is Exchange.NONE


def _size(arm: ArmRecords, which: Baseline) -> tuple[Any, ...]:
    """What an arm and its baseline must have in common."""
    if which == "one device":
        return arm.folder, arm.baseline
    return arm.folder, devices_of(arm.measured[0]), arm.measured[0].hosts


def _keys(arm: ArmRecords, which: Baseline) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Arms with one of these keys in common have no `differences`: the same work and batch, of a device or of all."""
    record = arm.measured[0]
    work = (*(repr(record.spec.get(key)) for key in _WORK), *(repr(record.hardware.get(key)) for key in _MACHINE))
    batch, every = batches(record)
    size = _size(arm, which)
    return ("per device", batch, *size, *work), ("global", every, *size, *work)


def is_same_work(spec: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two specs of one bench do the same work, distributed in another way."""
    return all(spec.get(key) == other.get(key) for key in _WORK)


def differences(record: Record, baseline: Record) -> tuple[str, ...]:
    """How work and machine differ, as `precision: mixed_float16, not float32`.

    One of the two batch sizes may differ: the global one in weak scaling, the one per device in strong.
    """
    spec, other = record.spec, baseline.spec
    differing = [
        f"{key.replace('_', ' ')}: {spec.get(key)}, not {other.get(key)}"
        for key in _WORK
        if spec.get(key) != other.get(key) and (key == "command" or "command" not in {**spec, **other})
    ]
    (batch, every), (of_baseline, of_all) = batches(record), batches(baseline)
    if batch != of_baseline and every != of_all:
        differing.append(f"batch per device: {batch:.6g}, not {of_baseline:.6g}")
    if any(record.hardware.get(key) != baseline.hardware.get(key) for key in _MACHINE):
        differing.append("another machine")
    return tuple(differing)


def versus_baseline(
    arms: Sequence[ArmRecords], statistics: Statistics, which: Baseline
) -> Mapping[str, VersusBaseline]:
    """The arms that have this baseline, by label. Those of one folder are compared together."""
    found = list(find_baselines(arms, which))
    versus: dict[str, VersusBaseline] = {}
    for folder in dict.fromkeys(arm.folder for arm in arms):
        group = [entry for entry in found if entry[0].folder == folder]
        comparisons = statistics.compare([(arm.label, baseline.label) for arm, baseline, _ in group])
        for (arm, baseline, differences), comparison in zip(group, comparisons, strict=True):
            figure, of_baseline = statistics.figure(baseline.label), devices_of(baseline.measured[0])
            assert figure is not None  # it was measured
            per_device, devices = figure.images_per_s / of_baseline, devices_of(arm.measured[0]) / of_baseline
            versus[arm.label] = VersusBaseline(baseline.label, comparison, devices, per_device, differences)
    return versus
