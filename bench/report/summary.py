"""Records -> one row per arm with its figures, and whether arms that compute the same have the same losses. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from tfdist.bench.collectives.results import Sweep
from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.arm_records import ArmRecords, arm_of, arms_of, batches
from tfdist.bench.report.baseline import VersusBaseline, versus_baseline
from tfdist.bench.report.costs import cost_values
from tfdist.bench.statistics import FEWEST_ROUNDS, FLOOR, Comparison, Interval, Statistics
from tfdist.launch.text import counted
from tfdist.models.record import Record, RecordStatus
from tfdist.models.throughput import exchange, measuring_ranks
from tfdist.strategies.catalog import CATALOG, Exchange

FIRST, LATER = 1, 5
"""The steps whose losses are compared. The first one depends on data and initial weights, the later one on gradients.
A task closes windows at both before it is measured."""
SAME_FIRST = 1e-3
"""Largest relative difference of the first losses. Another order of float32 sums makes 2e-6."""
SAME_LATER = 0.08
"""Largest difference of the later losses, as a share of the drop from the first one.

Training amplifies rounding errors, as another number of threads makes, to 7 % of a loss that has dropped to a twentieth
(MobileNetV2, 96 px, batch 16, Adam, two replicas). That is 0.3 % of the drop; 1.3 % with alpha 0.35 at 32 px. Relative
noise of 1e-3 in the gradients, as TF32 makes, is 0.2 % and 1.6 % of it. Without the gradients of one of n replicas the
difference is about 1/n of the drop: measured 32-33 % for n = 3, 23 % for n = 5.
"""
_SAME = (
    "model", "alpha", "image_size", "classes", "bn_momentum", "dataset", "data_dir", "shuffle", "optimizer",
    "learning_rate", "keras", "api", "xla", "seed", "batch_size", "gpus",
)  # fmt: skip
"""Fields of a spec that, with the number of replicas, determine the losses of a synchronous training in float32."""


class _Losses(NamedTuple):
    first: float
    later: float

    def agree(self, other: "_Losses") -> bool:
        drop = max(abs(self.first - self.later), abs(other.first - other.later))
        tolerance = SAME_LATER * drop + SAME_FIRST * abs(other.later)
        return self.begin_alike(other) and _close(self.later, other.later, tolerance)

    def begin_alike(self, other: "_Losses") -> bool:
        return _close(self.first, other.first, SAME_FIRST * abs(other.first))

    def difference(self, other: "_Losses", label: str) -> str:
        alike = self.begin_alike(other)
        step, ours, theirs = (LATER, self.later, other.later) if alike else (FIRST, self.first, other.first)
        return f"its loss in step {step} is {ours:.4g}, but {theirs:.4g} in {label}, which computes the same"


def wrong_arms(arms: Sequence[ArmRecords]) -> Mapping[str, str]:
    """Label -> reason, for each arm whose losses differ from those of most arms that compute the same.

    Without a majority all that differ are wrong: nothing says which one is right.
    """
    groups: dict[tuple[Any, ...], list[tuple[ArmRecords, _Losses]]] = {}
    for arm in arms:
        losses = next(filter(None, map(_losses, arm.measured)), None)
        if losses and _reproducible(arm):
            key = (arm.folder, arm.devices, *(str(arm.spec.get(name)) for name in _SAME))
            groups.setdefault(key, []).append((arm, losses))
    wrong = {}
    for group in groups.values():
        largest = max(([entry for entry in group if losses.agree(entry[1])] for _, losses in group), key=len)
        right = largest if 2 * len(largest) > len(group) else []
        for arm, losses in (entry for entry in group if entry not in right):
            differing = next((entry for entry in right or group if not losses.agree(entry[1])), None)
            if differing:
                wrong[arm.label] = losses.difference(differing[1], differing[0].label)
    return wrong


def _reproducible(arm: ArmRecords) -> bool:
    """Whether its losses are determined by its spec; in lower precision rounding errors are too large to say so."""
    precise = all(arm.spec.get(name, "float32") == "float32" for name in ("precision", "gradient_dtype"))
    chosen = not arm.spec.get("backup_workers")  # otherwise each step leaves out the slowest ones
    return precise and chosen and exchange(arm.spec) is Exchange.SYNC and "command" not in arm.spec


def _losses(record: Record) -> _Losses | None:
    warmup = record.ranks[0].warmup if record.ranks else ()
    steps = accumulate(window.steps for window in warmup)
    losses = dict(zip(steps, (window.loss for window in warmup), strict=True))
    first, later = losses.get(FIRST), losses.get(LATER)
    return None if first is None or later is None else _Losses(first, later)


def _close(one: float, other: float, tolerance: float) -> bool:
    """Equal within the tolerance; two diverged trainings agree."""
    if math.isfinite(one) and math.isfinite(other):
        return abs(one - other) <= tolerance
    return math.isfinite(one) == math.isfinite(other)


NOT_RUN = "not run"
PREDICTED = "predicted"
"""Not measured: a combination of a matrix that cannot be the fastest, by the effects of its factors."""
PARTIAL = "partial"
"""Measured in fewer rounds than planned."""
WRONG = "wrong"
"""Its losses differ from those of arms that compute the same."""
REFUTED = "refuted"
"""Its program did not train under its strategy."""


@dataclass(frozen=True)
class ArmRow(ArmRecords):
    """One arm with its figures, None if nothing was measured."""

    images_per_s: float | None
    """Throughput of the whole job: the geometric mean over starts, and of each start over its rounds."""
    spread: Interval | None
    """The confidence interval of `images_per_s`."""
    one_device: VersusBaseline | None
    independent: VersusBaseline | None
    status: str
    """WRONG, REFUTED, RecordStatus of the first record that is not ok, PARTIAL, PREDICTED, NOT_RUN, or ok."""
    reason: str
    statistics: Statistics = field(repr=False, compare=False)
    """The statistics of all arms of the report."""

    @cached_property
    def costs(self) -> Mapping[str, Any]:
        """`cost_values` of its records."""
        return cost_values(self, self.images_per_s)

    @property
    def valid(self) -> bool:
        """Its figure is one of what its name says; if it is not, it is never ranked."""
        return self.status not in (WRONG, REFUTED)

    @property
    def kind(self) -> str:
        """single-card, multi-card or multi-node; `(one host)` if a cluster ran on one machine."""
        if self.hosts > 1:
            return "multi-node"
        if CATALOG[self.strategy].has_cluster and self.spec.get("workers", 2) + self.spec.get("ps", 0) > 1:
            return "multi-node (one host)" if any(record.ranks for record in self.records) else "multi-node"
        return "single-card" if self.devices == 1 else "multi-card"

    @property
    def exchange(self) -> Exchange:
        """How its devices exchange gradients."""
        return exchange(self.spec)

    @property
    def batch_per_replica(self) -> float | None:
        """None: its program decides, and was not measured."""
        return batches(self.measured[0])[0] if self.measured else self.spec.get("batch_size")

    @property
    def batch_global(self) -> int | None:
        """Examples of a step of all devices, without those of backup workers."""
        return batches(self.measured[0])[1] if self.measured else self.spec.get("global_batch_size")

    @cached_property
    def contradiction(self) -> str:
        """Why its figures cannot be true; empty: nothing contradicts them."""
        strategy, planned = CATALOG[self.strategy], self.spec.get("devices")
        ranks = [rank for record in self.measured for rank in measuring_ranks(record)]
        known = strategy.replicas_known and strategy.trains_built_in  # else only the program's framework knows
        other = next((rank for rank in ranks if known and rank.replicas != planned), None)
        if other:
            return f"{other.task} trained {counted(other.replicas, 'replica')}, and the arm has {planned} in a process"
        more = self.one_device if self.one_device and self.one_device.devices > 1 else None
        for versus, bound in ((more, 1.0), (self.independent, 1.05)):
            limits = versus.efficiency_interval if versus and not versus.differences and self.devices != 1 else None
            if versus and limits and limits.low > bound:
                slower = arm_of(self.folder, versus.label)
                return (
                    f"{self.devices} devices are {versus.comparison.ratio:.2f} times as fast as {slower}, an "
                    f"efficiency of {100 * versus.efficiency:.0f} %"
                )
        return ""

    @property
    def why_not_ranked(self) -> str:
        """Why the figures of a measured arm are not ranked, whatever the others are; empty: they may be."""
        reasons = {WRONG: "wrong losses", REFUTED: "the program did not train under the arm's strategy"}
        return reasons.get(self.status, self.contradiction)

    def has_batch_of(self, other: "ArmRow") -> bool:
        """Whether both have the same batch, of a device or of all. Always true of the built-in training."""
        same = self.batch_global == other.batch_global or self.batch_per_replica == other.batch_per_replica
        return same or "command" not in self.spec

    @property
    def over_base(self) -> Comparison | None:
        """Its throughput over that of its baseline; None: one of them was not measured."""
        return self.one_device.comparison if self.one_device else None

    @property
    def rate(self) -> float:
        """`images_per_s`, 0 if nothing was measured."""
        return self.images_per_s or 0.0

    @property
    def per_device(self) -> float | None:
        """Images per second per device."""
        return None if self.images_per_s is None or not self.devices else self.images_per_s / self.devices

    @property
    def ideal(self) -> float | None:
        """Images per second if each device were as fast as the baseline's; None: no baseline."""
        return self.one_device.per_device * self.devices if self.one_device and self.devices else None

    @property
    def hosts(self) -> int:
        """The number of hosts it ran on."""
        return max((record.hosts for record in self.records), default=1)

    @property
    def link(self) -> Mapping[str, float]:
        """The slowest link between neighbouring hosts, of the first round that has one."""
        return next((record.link for record in self.records if record.link), {})


def summarize(
    folders: Sequence[ResultFolder], baseline: str | None = None, statistics: Statistics | None = None
) -> tuple[ArmRow, ...]:
    """A row for every arm of every folder in the order of the suite, those that never ran included.

    Args:
        folders: read before.
        baseline: an arm with which all others are compared, in place of the suite's; None: that.
        statistics: those with the rules of a report; None: each set of comparisons has an error rate of its own.
    """
    arms = arms_of(folders, baseline)
    statistics = statistics or statistics_of(arms, folders)
    one_device = versus_baseline(arms, statistics, "one device")
    independent = versus_baseline(arms, statistics, "independent")
    wrong = wrong_arms(arms)
    rows = []
    for arm in arms:
        figure, (status, reason) = statistics.figure(arm.label), _status(arm, wrong.get(arm.label))
        rows.append(
            ArmRow(
                **{each.name: getattr(arm, each.name) for each in fields(arm)},
                images_per_s=figure.images_per_s if figure else None,
                spread=figure.interval if figure else None,
                one_device=one_device.get(arm.label),
                independent=independent.get(arm.label),
                status=status,
                reason=reason,
                statistics=statistics,
            )
        )
    return tuple(rows)


def statistics_of(arms: Sequence[ArmRecords], folders: Sequence[ResultFolder]) -> Statistics:
    """The figures of the arms of these folders, by label."""
    floor = max((folder.bench.floor for folder in folders if folder.bench), default=FLOOR)
    return Statistics({arm.label: arm.rates for arm in arms}, floor)


def rank(rows: Sequence[ArmRow]) -> tuple[list[ArmRow], dict[str, str]]:
    """The measured arms of a folder that are compared with each other, and label -> why others are not ranked.

    Trainings without exchange are a ceiling and those on one device a baseline: they are compared only if nothing else
    was measured. A single arm is, whatever its rounds.
    """
    measured = [row for row in rows if row.measured]
    exchanging = [row for row in measured if row.exchange is not Exchange.NONE] or measured
    few = f"fewer than {FEWEST_ROUNDS} rounds" if len(exchanging) > 1 else ""
    reasons = {row.label: row.why_not_ranked or (few if row.rounds < FEWEST_ROUNDS else "") for row in measured}
    right = [row for row in exchanging if not reasons[row.label]]
    rivals = [row for row in right if (row.devices or 0) > 1] or right
    if rivals:  # programs of the user's own at equal work: that of most of them, by device or by step
        most = max(rivals, key=lambda row: sum(row.has_batch_of(other) for other in rivals))
        other_work = f"not the {most.batch_per_replica:.6g} examples per device and step of {most.arm}"
        reasons |= {
            row.label: f"{row.batch_per_replica:.6g}, {other_work}" for row in rivals if not row.has_batch_of(most)
        }
    return [row for row in rivals if not reasons[row.label]], {label: why for label, why in reasons.items() if why}


def fastest(rows: Iterable[ArmRow]) -> ArmRow:
    """The row with the most images/s, of those that were measured to the end if there are any."""
    return max(rows, key=lambda row: (not row.dropped, row.rate))


def others_over(best: ArmRow, rows: Sequence[ArmRow]) -> list[tuple[ArmRow, Comparison]]:
    """Each of `rows` but `best` with its throughput over that of `best`."""
    others = [row for row in rows if row is not best]
    comparisons = best.statistics.compare([(row.label, best.label) for row in others])
    return list(zip(others, comparisons, strict=True))


def at_most_slower(comparisons: Iterable[Comparison]) -> float:
    """The share by which arms may be slower at most than the one they are compared with; all have an interval."""
    return max(0.0, 1 - min(each.interval.low for each in comparisons if each.interval))


def _status(arm: ArmRecords, wrong: str | None) -> tuple[str, str]:
    if arm.refutation:
        return REFUTED, arm.refutation
    if wrong:
        return WRONG, wrong
    bad = next((record for record in arm.records if record.status != RecordStatus.OK), None)
    if bad and not (arm.measured and bad.status == RecordStatus.INTERRUPTED):
        return bad.status, bad.reason
    if arm.rounds >= arm.rounds_planned:  # with until_accuracy, a repeated start may need more
        return RecordStatus.OK, arm.dropped
    if arm.measured:
        return PARTIAL, f"{arm.rounds} of {arm.rounds_planned} rounds"
    return NOT_RUN, "the bench ended before its first turn"


@dataclass(frozen=True)
class ReportData:
    """The records of a report, and what follows from them."""

    folders: tuple[ResultFolder, ...]
    rows: Sequence[ArmRow]
    notes: tuple[str, ...] = ()
    """Sentences below the table of arms."""
    sweeps: Mapping[str, Sweep] = field(default_factory=dict)
    """The collectives that a bench used for its ceiling, by `ArmRow.folder`."""
