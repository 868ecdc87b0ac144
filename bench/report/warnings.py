"""Warnings about the figures of a report, each with advice. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tfdist.bench.report.baseline import devices_of
from tfdist.bench.report.scaling import scaling_of
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict
from tfdist.launch.machine import BUSY
from tfdist.models.record import BUSY_BEFORE, Record
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName


@dataclass(frozen=True)
class Warning:
    """A problem of the figures, and how to avoid it."""

    code: str
    text: str
    advice: str


def warnings_for(rows: Sequence[ArmRow]) -> tuple[Warning, ...]:
    """Those that apply, the most severe first."""
    rows = [row for row in rows if row.measured]
    comparable = (*_no_baseline(rows), *_different_work(rows), *_mixed_scaling(rows))
    arms = [warning for check in _ARM_CHECKS for warning in _arms(check, rows)]
    return (*comparable, *_arms(_ABOVE_CEILING, rows), *_busy(rows), *arms)


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


def _busy(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    shares = [record.hardware.get(BUSY_BEFORE, 0.0) for row in rows for record in row.measured]
    busy = [share for share in shares if share > BUSY]
    if busy:
        yield Warning(
            "busy-machine",
            f"Other programs were busy just before {len(busy)} of {len(shares)} runs (up to {max(busy):.0%} of all "
            f"cores).",
            "Close other programs and measure again; more rounds do not remove their effect.",
        )


@dataclass(frozen=True)
class _ArmCheck:
    """A warning that lists the arms it applies to."""

    code: str
    applies: Callable[[ArmRow], bool]
    text: str
    advice: str


def _arms(check: _ArmCheck, rows: Sequence[ArmRow]) -> Iterable[Warning]:
    labels = ", ".join(row.label for row in rows if check.applies(row))
    if labels:
        yield Warning(check.code, f"{labels}: {check.text}", check.advice)


def _devices_outnumber_cores(record: Record) -> bool:
    """Whether pinned devices need more cores than the job's hosts have (all counted like the first)."""
    cores = record.hardware.get("cores")
    if not _pinned(record) or not cores:
        return False
    return bool(devices_of(record) * record.spec["cores_per_device"] > len(cores) * record.hosts)


def _pinned(record: Record) -> bool:
    return bool(record.spec["cores_per_device"]) and not record.spec["gpus"]


_ABOVE_CEILING = _ArmCheck(
    "above-ceiling",
    lambda row: row.independent is not None and row.independent.comparison.verdict is ArmVerdict.FASTER,
    "faster than trainings without exchange, which should be the upper limit.",
    "Check the measurement: compare the window times of both, and look for other load on the machine.",
)
_ARM_CHECKS = (
    _ArmCheck(
        "few-rounds",
        lambda row: row.rounds < FEWEST_ROUNDS,
        f"fewer than {FEWEST_ROUNDS} rounds, so there is no verdict.",
        f"Run 'tfdist bench' with --rounds {FEWEST_ROUNDS} or more.",
    ),
    _ArmCheck(
        "shared-cores",
        lambda row: any(_devices_outnumber_cores(record) for record in row.measured),
        "more devices than CPU cores, so devices share cores.",
        "With enough cores their throughput would be higher.",
    ),
    _ArmCheck(
        "ps-share-cores",  # launch/job.py pins them there
        lambda row: any(_pinned(record) and record.spec["ps"] for record in row.measured),
        "parameter servers share the cores of the workers, so that every arm uses the same number of cores.",
        "On separate hosts their throughput would be higher.",
    ),
    _ArmCheck(
        "loopback",
        lambda row: CATALOG[StrategyName(row.strategy)].has_cluster and row.hosts == 1,
        "all processes ran on one host and communicated through its memory, not over a network.",
        "To learn the speed on several machines, measure there with --hosts.",
    ),
)
