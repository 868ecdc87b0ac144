"""Figures of arms in the formats that dashboards for continuous benchmarking read. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdist.bench.report.across import Change
from tfdist.bench.report.format import in_unit
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import Comparison, Interval
from tfdist.launch.str_enum import StrEnum

if TYPE_CHECKING:
    from tfdist.bench.report.build import Report


class ExportFormat(StrEnum):
    """What --export writes to stdout."""

    BENCHER = "bencher"
    """Bencher Metric Format: https://bencher.dev/docs/reference/bencher-metric-format."""
    GITHUB = "github"
    """Input of github-action-benchmark with `tool: customBiggerIsBetter`."""
    JSON = "json"
    """The JSON of --json."""


@dataclass(frozen=True)
class ExportedFigure:
    """A figure of one arm; more is better."""

    arm: str
    measure: str
    """Its name at Bencher: `throughput` or `ratio`."""
    unit: str
    value: float
    interval: Interval | None

    @property
    def name(self) -> str:
        """Unique among the figures of a bench."""
        return self.arm if self.measure == "throughput" else f"{self.arm}: {self.measure}"


def exported(figures: Iterable[ExportedFigure], form: ExportFormat) -> Any:
    """The JSON values of a format other than JSON itself."""
    if form is ExportFormat.BENCHER:
        arms: dict[str, dict[str, dict[str, float]]] = {}
        for each in figures:
            limits = {"lower_value": each.interval.low, "upper_value": each.interval.high} if each.interval else {}
            arms.setdefault(each.arm, {})[each.measure] = {"value": each.value, **limits}
        return arms
    return [{"name": each.name, "unit": each.unit, "value": each.value} | _range(each) for each in figures]


def _range(figure: ExportedFigure) -> dict[str, str]:
    """The interval, as the dashboard draws and shows it."""
    if figure.interval is None:
        return {}
    half = max(figure.value - figure.interval.low, figure.interval.high - figure.value)
    return {"range": f"± {half:.4g}", "extra": f"{figure.interval.low:.4g} to {figure.interval.high:.4g}"}


def figures_of(report: "Report") -> Iterator[ExportedFigure]:
    """The throughput of each measured arm, unless it is known to be wrong."""
    return (_throughput(row) for row in report.rows if row.images_per_s and row.valid)


def _throughput(row: ArmRow) -> ExportedFigure:
    return ExportedFigure(row.label, "throughput", in_unit("images/s", [row]), row.rate, row.spread)


def ratios_of(compared: Iterable[tuple[str, Comparison | None]]) -> Iterator[ExportedFigure]:
    """The throughput of each arm over that of its base, if both were measured."""
    return (ExportedFigure(arm, "ratio", "times the base", of.ratio, of.interval) for arm, of in compared if of)


def figures_of_changes(changes: Iterable[Change]) -> Iterator[ExportedFigure]:
    """The throughput of the new bench, and its ratios over the base."""
    for change in changes:
        if change.comparison:
            yield _throughput(change.new)
            yield from ratios_of([(change.arm, change.comparison)])
