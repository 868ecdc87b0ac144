"""Records -> one row per arm with all its figures. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.baseline import Baseline, Candidate, devices_of, find_baseline
from tfdist.bench.statistics import Block, Comparison, Interval, Statistics
from tfdist.models.record import Record, RecordStatus
from tfdist.models.throughput import exchange, throughput
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import StrategyName

NOT_RUN = "not run"


@dataclass(frozen=True)
class VersusBaseline:
    """An arm compared with one baseline."""

    label: str
    """The baseline's `ArmRow.label`."""
    comparison: Comparison
    efficiency: float
    """Throughput per device over the baseline's; 1.0 is ideal."""
    per_device: float
    """The baseline's images/s per device."""
    differences: tuple[str, ...]
    """As `baseline.differences`."""


@dataclass(frozen=True)
class ArmRow:
    """One arm. Figures are None if nothing was measured."""

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
    """Of the whole job: the geometric mean over rounds."""
    spread: Interval | None
    one_device: VersusBaseline | None
    independent: VersusBaseline | None
    largest_process_bytes: int | None
    """Peak resident memory of the largest process, the highest of all rounds."""
    job_bytes: int | None
    """The sum of all processes' peaks, the highest of all rounds."""
    rounds: int
    rounds_planned: int
    status: str
    """RecordStatus of the first round that is not ok, NOT_RUN, or ok."""
    reason: str
    records: tuple[Record, ...]
    """One per round."""

    @property
    def label(self) -> str:
        """The arm's name, after its folder in a report over several."""
        return _label(self.folder, self.arm)

    @property
    def per_device(self) -> float | None:
        """Images per second per device."""
        return None if self.images_per_s is None or not self.devices else self.images_per_s / self.devices

    @property
    def hosts(self) -> int:
        """The number of hosts it ran on."""
        return max((record.hosts for record in self.records), default=1)

    @property
    def link(self) -> Mapping[str, float]:
        """The slowest link between neighbouring hosts, of the first round that has one."""
        return next((record.link for record in self.records if record.link), {})

    @property
    def measured(self) -> tuple[Record, ...]:
        """The records with figures."""
        return measured(self.records)


def summarize(folders: Sequence[ResultFolder]) -> tuple[ArmRow, ...]:
    """A row for every arm of every folder in the order of the suite, those that never ran included."""
    several = len(folders) > 1
    groups = [
        (folder.label if several else "", folder, arm, records)
        for folder in folders
        for arm, records in _by_arm(folder)
    ]
    candidates = [
        Candidate(label, arm, ok[0], rounds_of(ok)) for label, _, arm, records in groups if (ok := measured(records))
    ]
    statistics = Statistics({
        _label(label, arm): blocks_of(records, folders.index(folder)) for label, folder, arm, records in groups
    })  # fmt: skip
    return tuple(_row(label, folder, arm, records, candidates, statistics) for label, folder, arm, records in groups)


def rounds_of(records: Sequence[Record]) -> dict[Any, float]:
    """The throughput of each measured round."""
    return {record.round: throughput(record) for record in measured(records)}


def blocks_of(records: Sequence[Record], group: int = 0) -> dict[Block, float]:
    """The throughput of each measured turn, each in fresh processes."""
    return {Block(group, number, number): value for number, value in rounds_of(records).items()}


def measured(records: Sequence[Record]) -> tuple[Record, ...]:
    """Those with figures."""
    return tuple(record for record in records if record.status == RecordStatus.OK)


def _by_arm(folder: ResultFolder) -> list[tuple[str, list[Record]]]:
    """In the order of the suite, then arms that it does not have."""
    names = [arm.name for arm in folder.bench.suite.arms] if folder.bench else []
    grouped: dict[str, list[Record]] = {name: [] for name in names}
    for record in sorted(folder.records, key=lambda record: (record.round, record.order)):
        grouped.setdefault(record.arm, []).append(record)
    return list(grouped.items())


def _row(
    label: str,
    folder: ResultFolder,
    arm: str,
    records: list[Record],
    candidates: Sequence[Candidate],
    statistics: Statistics,
) -> ArmRow:
    spec = _spec(folder, arm, records)
    strategy = StrategyName(spec["strategy"])
    figure = statistics.figure(_label(label, arm))
    planned = folder.bench.suite.rounds if folder.bench else len(records)
    status, reason = _status(records, planned)
    ok, batch = measured(records), spec.get("batch_size")
    devices = devices_of(ok[0]) if ok else _planned_devices(spec)

    def compared(which: Baseline) -> VersusBaseline | None:
        return _compared(label, records, find_baseline(label, records, candidates, which), statistics)

    return ArmRow(
        folder=label,
        arm=arm,
        strategy=strategy,
        kind=_kind(strategy, devices, records),
        exchange=exchange(strategy),
        devices=devices,
        batch_per_replica=batch,
        batch_global=batch * devices if batch and devices else spec.get("global_batch_size"),
        images_per_s=figure.images_per_s if figure else None,
        spread=figure.interval if figure else None,
        one_device=compared("one device"),
        independent=compared("independent"),
        largest_process_bytes=max((peak for record in ok for peak in _peaks(record)), default=None),
        job_bytes=max((sum(_peaks(record)) for record in ok), default=None),
        rounds=figure.rounds if figure else 0,
        rounds_planned=planned,
        status=status,
        reason=reason,
        records=tuple(records),
    )


def _spec(folder: ResultFolder, arm: str, records: Sequence[Record]) -> Mapping[str, Any]:
    """The complete spec of a run, else the choices in the suite."""
    for record in records:
        return record.spec
    assert folder.bench is not None  # without records, the arm comes from a suite
    return next(entry.choices for entry in folder.bench.suite.arms if entry.name == arm)


def _planned_devices(spec: Mapping[str, Any]) -> int | None:
    """Replicas of a job that measured nothing; None if the machine would have decided."""
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
    """single-card, multi-card or multi-node; `(one host)` if a cluster ran on one machine."""
    if any(record.hosts > 1 for record in records):
        return "multi-node"
    if CATALOG[strategy].has_cluster:
        return "multi-node (one host)" if any(record.ranks for record in records) else "multi-node"
    return "single-card" if devices == 1 else "multi-card"


def _status(records: Sequence[Record], planned: int) -> tuple[str, str]:
    for record in records:
        if record.status != RecordStatus.OK:
            return record.status, record.reason
    if len(records) < planned:
        return NOT_RUN, f"the bench ended after {len(records)} of {planned} rounds"
    return RecordStatus.OK, ""


def _compared(
    label: str,
    records: Sequence[Record],
    baseline: tuple[Candidate, tuple[str, ...]] | None,
    statistics: Statistics,
) -> VersusBaseline | None:
    if baseline is None:
        return None
    candidate, differences = baseline
    name = _label(candidate.folder, candidate.arm)
    (comparison,) = statistics.compare([(_label(label, records[0].arm), name)])
    baseline_devices = devices_of(candidate.record)
    efficiency = comparison.ratio * baseline_devices / devices_of(measured(records)[0])
    figure = statistics.figure(name)
    assert figure is not None  # candidates were measured
    return VersusBaseline(name, comparison, efficiency, figure.images_per_s / baseline_devices, differences)


def _label(folder: str, arm: str) -> str:
    return f"{folder}: {arm}" if folder else arm


def _peaks(record: Record) -> list[int]:
    """Of each process, parameter servers included, by the operating system; else as its task measured it."""
    usage = [task.peak_memory_bytes for task in record.usage.values()]
    return usage or [rank.peak_memory_bytes for rank in record.ranks]
