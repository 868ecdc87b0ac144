"""Warnings about the figures of a report, each with advice. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tfdist.bench.report.baseline import devices_of
from tfdist.bench.report.scaling import scaling_of
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict
from tfdist.models.record import BUSY_BEFORE, Record
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName

_BUSY = 0.1
"""Share of all cores used by others above which a machine is busy."""


@dataclass(frozen=True)
class Warning:
    """A problem of the figures, and how to avoid it."""

    code: str
    text: str
    advice: str


def warnings_for(rows: Sequence[ArmRow]) -> tuple[Warning, ...]:
    """Those that apply, the most severe first."""
    measured = [row for row in rows if row.measured]
    return tuple(warning for check in _CHECKS for warning in check(measured))


def _no_baseline(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    if rows and all(row.one_device is None for row in rows):
        yield Warning(
            "no-baseline",
            "No one-device arm was measured, so there is no speed-up and no efficiency.",
            "Add an arm with strategy one-device.",
        )


def _different_work(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    for row in rows:
        for versus in (row.one_device, row.independent):
            if versus and versus.differences:
                yield Warning(
                    "different-work",
                    f"{row.label} is compared with {versus.label}, which differs: {'; '.join(versus.differences)}.",
                    "Give the baseline the same settings.",
                )


def _mixed_scaling(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    if scaling_of(rows) == "mixed":
        yield Warning(
            "mixed-scaling",
            "Neither the batch per device nor the global batch is the same in all arms.",
            "Fix one of them, and report weak and strong scaling separately.",
        )


def _few_rounds(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    few = [row for row in rows if row.rounds < FEWEST_ROUNDS]
    if few:
        yield Warning(
            "few-rounds",
            f"{_names(few)}: fewer than {FEWEST_ROUNDS} rounds, so there is no interval and no verdict.",
            f"Use --rounds {FEWEST_ROUNDS} or more.",
        )


def _above_ceiling(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    above = [row for row in rows if row.independent and row.independent.comparison.verdict is ArmVerdict.FASTER]
    if above:
        yield Warning(
            "above-ceiling",
            f"{_names(above)}: faster than trainings without exchange, which should be the upper limit.",
            "Check the measurement: compare the window times of both, and look for other load on the machine.",
        )


def _shared_cores(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    shared = [row for row in rows if any(_devices_outnumber_cores(record) for record in row.measured)]
    if shared:
        yield Warning(
            "shared-cores",
            f"{_names(shared)}: more devices than CPU cores, so devices share cores.",
            "With enough cores their throughput would be higher.",
        )


def _devices_outnumber_cores(record: Record) -> bool:
    """Whether pinned devices need more cores than the job's hosts have (all counted like the first)."""
    cores = record.hardware.get("cores")
    if not _pinned(record) or not cores:
        return False
    return bool(devices_of(record) * record.spec["cores_per_device"] > len(cores) * record.hosts)


def _pinned(record: Record) -> bool:
    return bool(record.spec["cores_per_device"]) and not record.spec["gpus"]


def _servers_share_cores(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    """As `tfdist.launch.job` pins them."""
    sharing = [row for row in rows if any(_pinned(record) and record.spec["ps"] for record in row.measured)]
    if sharing:
        yield Warning(
            "ps-share-cores",
            f"{_names(sharing)}: parameter servers share the cores of the workers, so that every arm uses the same "
            f"number of cores.",
            "On separate hosts their throughput would be higher.",
        )


def _one_host(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    local = [row for row in rows if CATALOG[StrategyName(row.strategy)].has_cluster and row.hosts == 1]
    if local:
        yield Warning(
            "loopback",
            f"{_names(local)}: all processes ran on one host and communicated through its memory, not over a network.",
            "To learn the speed on several machines, measure there with --hosts.",
        )


def _busy(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    runs = [(row, record) for row in rows for record in row.measured]
    busy = [(row, record) for row, record in runs if record.hardware.get(BUSY_BEFORE, 0.0) > _BUSY]
    if busy:
        most = max(record.hardware[BUSY_BEFORE] for _, record in busy)
        yield Warning(
            "busy-machine",
            f"Other programs were busy just before {len(busy)} of {len(runs)} runs (up to {most:.0%} of all cores).",
            "Close other programs and measure again; more rounds do not remove their effect.",
        )


def _names(rows: Sequence[ArmRow]) -> str:
    return ", ".join(row.label for row in rows)


_CHECKS: tuple[Callable[[Sequence[ArmRow]], Iterable[Warning]], ...] = (
    _no_baseline,
    _different_work,
    _mixed_scaling,
    _above_ceiling,
    _busy,
    _few_rounds,
    _shared_cores,
    _servers_share_cores,
    _one_host,
)
