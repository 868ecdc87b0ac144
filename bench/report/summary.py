"""Records -> one row per arm with all its figures. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.arm_records import ArmRecords, arms_of
from tfdist.bench.report.costs import Costs, costs_of
from tfdist.bench.report.losses import wrong_arms
from tfdist.bench.report.versus import VersusBaseline, versus_baseline
from tfdist.bench.statistics import Block, Interval, Statistics
from tfdist.models.record import Record, RecordStatus
from tfdist.models.throughput import exchange
from tfdist.strategies.catalog import CATALOG, Exchange

NOT_RUN = "not run"
PARTIAL = "partial"
"""Measured in fewer rounds than planned."""
WRONG = "wrong"
"""Its losses differ from those of arms that compute the same: never ranked."""


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
    """Throughput of the whole job: the geometric mean over rounds."""
    spread: Interval | None
    """The confidence interval of `images_per_s`."""
    one_device: VersusBaseline | None
    independent: VersusBaseline | None
    costs: Costs
    rounds: int
    rounds_planned: int
    status: str
    """WRONG, RecordStatus of the first record that is not ok, PARTIAL, NOT_RUN, or ok."""
    reason: str
    records: tuple[Record, ...]
    """One per turn."""
    rates: Mapping[Block, float] = field(default_factory=dict)
    """Images/s of each turn."""

    @property
    def label(self) -> str:
        """The arm's name, after its folder in a report over several."""
        return f"{self.folder}: {self.arm}" if self.folder else self.arm

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
        return tuple(record for record in self.records if record.status == RecordStatus.OK)


def summarize(folders: Sequence[ResultFolder]) -> tuple[ArmRow, ...]:
    """A row for every arm of every folder in the order of the suite, those that never ran included."""
    arms = arms_of(folders)
    statistics = Statistics({arm.label: arm.rates for arm in arms})
    one_device = versus_baseline(arms, statistics, "one device")
    independent = versus_baseline(arms, statistics, "independent")
    wrong = wrong_arms(arms)
    return tuple(
        _row(arm, statistics, one_device.get(arm.label), independent.get(arm.label), wrong.get(arm.label, ""))
        for arm in arms
    )


def statistics_of(rows: Sequence[ArmRow]) -> Statistics:
    """What the figures of these rows come from, for other comparisons of them."""
    return Statistics({row.label: row.rates for row in rows})


def _row(
    arm: ArmRecords,
    statistics: Statistics,
    one_device: VersusBaseline | None,
    independent: VersusBaseline | None,
    wrong: str,
) -> ArmRow:
    figure = statistics.figure(arm.label)
    batch, devices, backup = arm.spec.get("batch_size"), arm.devices, arm.spec.get("backup_workers", 0)
    status, reason = (WRONG, wrong) if wrong else _status(arm)
    return ArmRow(
        folder=arm.folder,
        arm=arm.arm,
        strategy=arm.strategy,
        kind=_kind(arm),
        exchange=exchange(arm.spec),
        devices=devices,
        batch_per_replica=batch,
        batch_global=batch * (devices - backup) if batch and devices else arm.spec.get("global_batch_size"),
        images_per_s=figure.images_per_s if figure else None,
        spread=figure.interval if figure else None,
        one_device=one_device,
        independent=independent,
        costs=costs_of(arm),
        rounds=arm.rounds,
        rounds_planned=arm.rounds_planned,
        status=status,
        reason=reason,
        records=arm.records,
        rates=arm.rates,
    )


def _kind(arm: ArmRecords) -> str:
    """single-card, multi-card or multi-node; `(one host)` if a cluster ran on one machine."""
    if any(record.hosts > 1 for record in arm.records):
        return "multi-node"
    if CATALOG[arm.strategy].has_cluster:
        return "multi-node (one host)" if any(record.ranks for record in arm.records) else "multi-node"
    return "single-card" if arm.devices == 1 else "multi-card"


def _status(arm: ArmRecords) -> tuple[str, str]:
    bad = next((record for record in arm.records if record.status != RecordStatus.OK), None)
    if bad and not (arm.measured and bad.status == RecordStatus.INTERRUPTED):
        return bad.status, bad.reason
    if arm.rounds == arm.rounds_planned:
        return RecordStatus.OK, ""
    if arm.measured:
        return PARTIAL, f"{arm.rounds} of {arm.rounds_planned} rounds"
    return NOT_RUN, "the bench ended before its first turn"
