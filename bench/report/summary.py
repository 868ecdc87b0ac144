"""Records -> one row an arm, with everything that the report says of it. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.baseline import Candidate, devices_of, find_baseline
from tfdist.bench.statistics import Comparison, Interval, compare, interval_over_rounds
from tfdist.models.record import Record
from tfdist.models.throughput import exchange, throughput
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import StrategyName

NOT_RUN = "not run"


@dataclass(frozen=True)
class Against:
    """An arm held against one baseline."""

    label: str
    """The baseline's `ArmRow.label`."""
    comparison: Comparison
    efficiency: float
    """1.0: every device does as much as each of the baseline's."""
    baseline_per_device: float
    """The baseline's images/s per device: the median over rounds."""
    differences: tuple[str, ...]
    """What else differs than how the work is spread, in words."""


@dataclass(frozen=True)
class ArmRow:
    """One arm. Figures are None where nothing was measured."""

    folder: str
    arm: str
    strategy: str
    kind: str
    """single-card, multi-card or multi-node."""
    exchange: Exchange
    devices: int | None
    batch_per_replica: int | None
    batch_global: int | None
    images_per_s: float | None
    """Of the whole job: the median over rounds."""
    spread: Interval | None
    one_device: Against | None
    independent: Against | None
    largest_process_bytes: int | None
    """Peak resident memory of the largest process, the highest of all rounds."""
    job_bytes: int | None
    """The sum of all processes' peaks, the highest of all rounds."""
    rounds: int
    """That were measured."""
    rounds_planned: int
    status: str
    """`ok`, or what became of the first round that was not."""
    reason: str
    records: tuple[Record, ...]
    """Of every round."""

    @property
    def label(self) -> str:
        """The arm's name, with its folder where there are several."""
        return f"{self.folder}: {self.arm}" if self.folder else self.arm

    @property
    def per_device(self) -> float | None:
        """Images per second and device."""
        return None if self.images_per_s is None or not self.devices else self.images_per_s / self.devices

    @property
    def hosts(self) -> int:
        """On how many it ran."""
        return max((record.hosts for record in self.records), default=1)

    @property
    def link(self) -> Mapping[str, float]:
        """The slowest way between neighbouring hosts, of the first round that has one."""
        return next((record.link for record in self.records if record.link), {})

    @property
    def measured(self) -> tuple[Record, ...]:
        """The records that hold figures."""
        return tuple(record for record in self.records if record.status == "ok")


def summarize(folders: Sequence[ResultFolder]) -> tuple[ArmRow, ...]:
    """A row for every arm of every folder, in the order of the suite; those that never ran too."""
    several = len(folders) > 1
    groups = [
        (folder.label if several else "", folder, arm, records)
        for folder in folders
        for arm, records in _by_arm(folder)
    ]
    candidates = [
        Candidate(label, arm, ok[0], rounds_of(ok)) for label, _, arm, records in groups if (ok := _ok(records))
    ]
    return tuple(_row(label, folder, arm, records, candidates) for label, folder, arm, records in groups)


def rounds_of(records: Sequence[Record]) -> dict[Any, float]:
    """The throughput of each measured round."""
    return {record.round: throughput(record) for record in records if record.status == "ok"}


def _ok(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.status == "ok"]


def _by_arm(folder: ResultFolder) -> list[tuple[str, list[Record]]]:
    """In the order of the suite, then whatever else there is."""
    names = [arm.name for arm in folder.bench.suite.arms] if folder.bench else []
    grouped: dict[str, list[Record]] = {name: [] for name in names}
    for record in sorted(folder.records, key=lambda record: (record.round, record.order)):
        grouped.setdefault(record.arm, []).append(record)
    return list(grouped.items())


def _row(label: str, folder: ResultFolder, arm: str, records: list[Record], candidates: Sequence[Candidate]) -> ArmRow:
    spec = _spec(folder, arm, records)
    strategy = StrategyName(spec["strategy"])
    rounds = rounds_of(records)
    planned = folder.bench.suite.rounds if folder.bench else len(records)
    status, reason = _status(records, planned)
    measured, batch = _ok(records), spec.get("batch_size")
    devices = devices_of(measured[0]) if measured else _planned_devices(spec)
    return ArmRow(
        folder=label,
        arm=arm,
        strategy=strategy,
        kind=_kind(strategy, devices, records),
        exchange=exchange(strategy),
        devices=devices,
        batch_per_replica=batch,
        batch_global=batch * devices if batch and devices else spec.get("global_batch_size"),
        images_per_s=median(rounds.values()) if rounds else None,
        spread=interval_over_rounds(list(rounds.values())),
        one_device=_against(label, records, find_baseline(label, records, candidates, "one device")),
        independent=_against(label, records, find_baseline(label, records, candidates, "independent")),
        largest_process_bytes=max((peak for record in measured for peak in _peaks(record)), default=None),
        job_bytes=max((sum(_peaks(record)) for record in measured), default=None),
        rounds=len(rounds),
        rounds_planned=planned,
        status=status,
        reason=reason,
        records=tuple(records),
    )


def _spec(folder: ResultFolder, arm: str, records: Sequence[Record]) -> Mapping[str, Any]:
    """The complete spec of a run, else what the suite says."""
    for record in records:
        return record.spec
    assert folder.bench is not None  # only a suite names arms without records
    return next(entry.choices for entry in folder.bench.suite.arms if entry.name == arm)


def _planned_devices(spec: Mapping[str, Any]) -> int | None:
    """Replicas of a job that measured nothing; None where they were left to a machine that refused, or to a TPU."""
    workers, devices = spec.get("workers"), spec.get("devices")
    strategy = CATALOG[StrategyName(spec["strategy"])]
    if not strategy.replicas_known:
        return None
    if (strategy.many_processes and workers is None) or (
        "--devices" in strategy.options and workers is devices is None
    ):
        return None
    return int((workers or 1) * (devices or 1))


def _kind(strategy: StrategyName, devices: int | None, records: Sequence[Record]) -> str:
    """By what the strategy spans. One host that plays several is named as what it is."""
    if any(record.hosts > 1 for record in records):
        return "multi-node"
    if CATALOG[strategy].has_cluster:
        return "multi-node (one host)" if any(record.ranks for record in records) else "multi-node"
    return "single-card" if devices == 1 else "multi-card"


def _status(records: Sequence[Record], planned: int) -> tuple[str, str]:
    """What the first round was that is not `ok`, and why."""
    for record in records:
        if record.status != "ok":
            return record.status, record.reason
    if not records:
        return NOT_RUN, "the bench ended before it"
    return (
        ("ok", "")
        if len(records) >= planned
        else (NOT_RUN, f"the bench ended after {len(records)} of {planned} rounds")
    )


def _against(
    label: str, records: Sequence[Record], baseline: tuple[Candidate, tuple[str, ...]] | None
) -> Against | None:
    if baseline is None:
        return None
    candidate, differences = baseline
    # rounds of two folders were not made side by side: they are no pairs
    elsewhere = candidate.folder != label
    theirs: dict[Hashable, float] = {(elsewhere, key): value for key, value in candidate.rounds.items()}
    comparison = compare({(False, key): value for key, value in rounds_of(records).items()}, theirs)
    name = f"{candidate.folder}: {candidate.arm}" if candidate.folder else candidate.arm
    baseline_devices = devices_of(candidate.record)
    efficiency = comparison.ratio * baseline_devices / devices_of(_ok(records)[0])
    return Against(name, comparison, efficiency, median(candidate.rounds.values()) / baseline_devices, differences)


def _peaks(record: Record) -> list[int]:
    """Each process's peak: the operating system's word, parameter servers included, else the tasks' own."""
    usage = [task.peak_memory_bytes for task in record.usage.values()]
    return usage or [rank.peak_memory_bytes for rank in record.ranks]
