"""Arms compared with their baselines. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdist.bench.report.arm_records import ArmRecords
from tfdist.bench.report.baseline import Baseline, find_baselines
from tfdist.bench.statistics import Comparison, Statistics


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
            versus[arm.label] = _versus(arm, baseline, comparison, statistics, differences)
    return versus


def _versus(
    arm: ArmRecords,
    baseline: ArmRecords,
    comparison: Comparison,
    statistics: Statistics,
    differences: tuple[str, ...],
) -> VersusBaseline:
    figure, devices, of_baseline = statistics.figure(baseline.label), arm.devices, baseline.devices
    if figure is None or devices is None or of_baseline is None:
        raise AssertionError("both were measured")
    return VersusBaseline(
        baseline.label, comparison, devices / of_baseline, figure.images_per_s / of_baseline, differences
    )
