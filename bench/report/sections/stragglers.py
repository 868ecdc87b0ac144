"""Stragglers: what a slow worker costs each strategy beside what waiting for it would, and the textbook's claims."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from tfdist.bench.learning import Updates, updates_of
from tfdist.bench.references import DISTRIBUTION, identity
from tfdist.bench.report.claims import STALENESS, Claim, ClaimResult, above, below, mark_seconds, staleness_values
from tfdist.bench.report.figures.colors import ASYNC, NONE, SYNC
from tfdist.bench.report.format import between, ends
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.report.summary import ArmRow, ReportData, statistics_of
from tfdist.bench.statistics import Comparison
from tfdist.bench.table import Column, Table
from tfdist.strategies.catalog import Exchange

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class StragglerArm:
    """An arm with a slow worker, beside the same arm without."""

    row: ArmRow
    steady: ArmRow
    """The same arm without."""
    factor: float
    """The slow worker's gradients take this many times as long."""
    extra_ms: float
    """Each of its steps takes this much longer, beside the factor."""
    comparison: Comparison
    """Its throughput over that of the same arm without the slow worker."""
    slowest: float
    """What would be left of its throughput if every worker waited for the slow one in each step."""
    average: float
    """What would be left if no worker waited for another one."""
    extra_from: str
    """The arm without exchange whose slow worker shows how much longer its step takes; empty: the factor says it."""

    @property
    def middle(self) -> float:
        """Below it the workers wait rather than not."""
        return (self.slowest + self.average) / 2

    @property
    def times(self) -> float:
        """Slow-down of the affected part: the gradients of the slow worker, or, with extra time, its step."""
        return 1 / self.slowest if self.extra_ms else self.factor

    @property
    def backup(self) -> int:
        """Number of workers that a step does not wait for."""
        return int(_spec(self.row).get("backup_workers") or 0)

    @property
    def strategy(self) -> str:
        """The strategy with the options that say whether its workers wait."""
        sync = " --sync" if _spec(self.row).get("sync") else ""
        return f"{self.row.strategy}{sync}" + (f" --set backup_workers={self.backup}" if self.backup else "")

    @property
    def worker(self) -> int:
        """The slow one."""
        return int(_spec(self.row)["slow_worker"])

    @property
    def updates(self) -> Updates | None:
        """None: not counted."""
        return updates_of(self.row.measured)


_SLOW = ("slow_worker", "slow_factor", "slow_ms")
"""Fields of a spec."""


def _spec(row: ArmRow) -> Mapping[str, Any]:
    return row.measured[0].spec


def job_of(row: ArmRow) -> tuple[Any, ...]:
    """What two arms have in common that differ in the slow worker only."""
    return row.folder, row.hosts, _without(_spec(row), _SLOW)


def _without(spec: Mapping[str, Any], names: Sequence[str]) -> str:
    return identity({key: value for key, value in spec.items() if key not in (*names, "seed")})


def _slowness(row: ArmRow) -> tuple[float, float] | None:
    """Factor of the gradients and extra milliseconds per step; None: no worker is slow."""
    spec = _spec(row)
    how = float(spec.get("slow_factor", 1.0)), float(spec.get("slow_ms", 0.0))
    return None if spec.get("slow_worker") is None or how == (1.0, 0.0) else how


def slowed_arms(rows: Sequence[ArmRow]) -> list[StragglerArm]:
    """The measured arms with a slow worker whose job was also measured without one."""
    steady: dict[tuple[Any, ...], ArmRow] = {}
    for row in rows:
        if _slowness(row) is None:
            steady.setdefault(job_of(row), row)
    pairs = [(row, steady[job_of(row)]) for row in rows if _slowness(row) and job_of(row) in steady]
    compared = statistics_of(rows).compare([(row.label, other.label) for row, other in pairs])
    found = []
    for (row, before), comparison in zip(pairs, compared, strict=True):
        (factor, extra_ms), workers = _slowness(row) or (1.0, 0.0), row.devices or 1
        step_s = (row.batch_global or 0) / (before.images_per_s or 1.0)
        extra_s = (factor - 1) * step_s + extra_ms / 1000
        alone = next((other for other in rows if _trains_alone(other, row) and job_of(other) in steady), None)
        if alone:  # it shows how much longer a step of the slow worker takes
            batch, slow = alone.batch_per_replica or 0, int(_spec(alone)["slow_worker"])
            extra_s = max(0.0, batch / _speeds(alone)[slow] - batch / _speeds(steady[job_of(alone)])[slow])
        slowest = step_s / (step_s + extra_s)
        average = (workers - 1 + slowest) / workers
        label = alone.label if alone else ""
        found.append(StragglerArm(row, before, factor, extra_ms, comparison, slowest, average, label))
    return found


def _trains_alone(other: ArmRow, row: ArmRow) -> bool:
    """Whether it is an arm without exchange that does the same work on as many devices, with the same slow worker."""

    def work(arm: ArmRow) -> tuple[Any, ...]:
        return arm.folder, arm.devices, _without(_spec(arm), DISTRIBUTION)

    return other.exchange is Exchange.NONE and _slowness(other) == _slowness(row) and work(other) == work(row)


def _speeds(row: ArmRow) -> list[float]:
    """Examples per second of each worker, over all turns."""
    tasks: dict[int, list[float]] = {}
    for record in row.measured:
        for rank in record.ranks:
            sums = tasks.setdefault(int(rank.task.rpartition("-")[2]), [0.0, 0.0])
            sums[0] += sum(window.examples for window in rank.windows)
            sums[1] += sum(window.elapsed_s for window in rank.windows)
    return [examples / seconds for _, (examples, seconds) in sorted(tasks.items())]


def straggler_section(measured: ReportData) -> Section | None:
    """None without an arm with a slow worker and the same arm without."""
    slowed = slowed_arms([row for row in measured.rows if row.measured])
    if not slowed:
        return None
    data = pd.DataFrame([_values(one) for one in slowed]).convert_dtypes()
    return Section(
        key="stragglers",
        title="A slow worker",
        answer=tuple(mark_seconds(claim.sentence, [each.row for each in slowed]) for claim in _claims(slowed)),
        charts=(_chart(slowed, data),),
        tables=(Table("stragglers", "What a slow worker costs", data, COLUMNS),),
        notes=(
            "A slow worker computes its gradients and then burns time until they have taken the factor's multiple, or "
            "so many milliseconds longer. The exchange of gradients is as fast as before, so that a job loses less "
            "than the factor says.",
            "If all wait, each step takes as much longer as the slow worker's own step does when it trains alone "
            "(independent). If none waits, only the slow worker's steps do. Without an arm that trains alone, all of a "
            "step is taken to be gradients.",
            "A claim holds up for an arm if the interval of the throughput that is left, 95 % with Holm's correction "
            "for the number of arms, lies on the claim's side of the middle between these two.",
        ),
    )


_CLAIMS: Sequence[tuple[str, Callable[..., ClaimResult], Callable[[StragglerArm], bool]]] = (
    (
        "Synchronous training goes at the pace of the slowest worker",
        below,
        lambda one: one.row.exchange is Exchange.SYNC and not one.backup,
    ),
    (
        "Asynchronous training does not wait for the slowest worker",
        above,
        lambda one: one.row.exchange is Exchange.ASYNC,
    ),
    ("With a backup worker, synchronous training does not wait for the slowest one", above, lambda one: one.backup > 0),
)


def _claims(slowed: Sequence[StragglerArm]) -> Iterator[Claim]:
    for text, judge, applies in _CLAIMS:
        each = list(filter(applies, slowed))
        if each:
            outcomes: tuple[ClaimResult, ...] = tuple(judge(one.comparison.interval, one.middle) for one in each)
            yield Claim(text, tuple(map(_clause, each)), outcomes)


def _clause(one: StragglerArm) -> str:
    limits = between(one.comparison.interval, ".2f")
    kept = f"{one.row.label} kept {one.comparison.ratio:.2f}{limits} of its images/s with a worker slowed "
    how = [f"{one.factor:g} times"] if one.factor != 1 else []
    how += [f"by {one.extra_ms:g} ms a step"] if one.extra_ms else []
    return f"{kept}{' and '.join(how)}; waiting would leave {one.slowest:.2f}, not waiting {one.average:.2f}"


def _chart(slowed: Sequence[StragglerArm], data: pd.DataFrame) -> Chart:
    texts = (f"{one.row.label} {one.comparison.ratio:.2f}" for one in slowed)
    return Chart(
        "stragglers_throughput",
        "Throughput that is left when one worker is slow",
        f"Share of the images/s without a slow worker, over {_slow_quantity(slowed)}. {'; '.join(texts)}.",
        partial(_paint, slowed=slowed),
        data,
        inches=4.4,
    )


def _slow_quantity(slowed: Sequence[StragglerArm]) -> str:
    what = "step takes" if any(one.extra_ms for one in slowed) else "gradients take"
    return f"times as long that one worker's {what}"


def _names(slowed: Sequence[StragglerArm]) -> dict[tuple[Any, ...], str]:
    """Names by job: its strategy, or, where several have the same one, its arm without a slow worker."""
    strategies = {job_of(one.row): one.strategy for one in slowed}
    shared = Counter(strategies.values())
    return {job_of(one.row): one.strategy if shared[one.strategy] == 1 else one.steady.label for one in slowed}


def _paint(axes: "Axes", slowed: Sequence[StragglerArm]) -> None:
    colors = {Exchange.SYNC: SYNC, Exchange.ASYNC: ASYNC, Exchange.NONE: NONE}
    groups = _names(slowed)
    for number_of, (job, strategy) in enumerate(groups.items()):
        points = sorted((one for one in slowed if job_of(one.row) == job), key=lambda one: one.times)
        xs, ys = [1.0, *(one.times for one in points)], [1.0, *(one.comparison.ratio for one in points)]
        color = colors[points[0].row.exchange]
        axes.plot(xs, ys, marker="osD^v"[number_of % 5], color=color, label=strategy)
        waiting = [1.0, *(one.slowest for one in points)]
        axes.plot(xs, waiting, ":", color=color, lw=1, label=f"{strategy}, if all waited for the slow worker")
        for one in points:
            if one.comparison.interval:
                low, high = one.comparison.interval.low, one.comparison.interval.high
                beside = one.times + 0.03 * (number_of - len(groups) // 2)  # intervals do not hide each other
                axes.plot([beside] * 2, [low, high], color=color, marker="_")
    axes.set_xlabel(_slow_quantity(slowed))
    axes.set_ylabel("share of the images/s")
    axes.set_ylim(bottom=0)


def _slowed(factor: float, extra_ms: float) -> str:
    return " and ".join([*([f"{factor:g} x"] if factor != 1 else []), *([f"{extra_ms:g} ms"] if extra_ms else [])])


_OF_SLOW = "slow_worker_"
COLUMNS = (
    Column("arm", ("arm",)),
    Column("slowed", ("factor", "extra_ms"), _slowed),
    Column("images/s", ("images_per_s",), "{:.0f}"),
    Column("share left", ("share_left",), "{:.2f}"),
    Column("interval", ("share_left_low", "share_left_high"), "{:.2f} to {:.2f}"),
    Column("if all waited", ("share_if_all_waited",), "{:.2f}"),
    Column("if none waited", ("share_if_none_waited",), "{:.2f}"),
    Column("its share of updates", ("slow_worker_share",), "{:.0%}"),
    Column(
        "staleness of its updates: mean, p95, max", tuple(f"{_OF_SLOW}{name}" for name in STALENESS), "{:.2f}, {}, {}"
    ),
    Column("of all", STALENESS, "{:.2f}, {}, {}"),
)


def _values(one: StragglerArm) -> dict[str, Any]:
    updates = one.updates
    return {
        "arm": one.row.label,
        "strategy": one.row.strategy,
        "factor": one.factor,
        "extra_ms": one.extra_ms,
        "images_per_s": one.row.images_per_s,
        "share_left": one.comparison.ratio,
        **ends("share_left", one.comparison.interval),
        "share_if_all_waited": one.slowest,
        "share_if_none_waited": one.average,
        "slow_step_measured_in": one.extra_from,
        "slow_worker_share": updates.shares[one.worker] if updates and updates.shares else None,
        **staleness_values(updates.of_worker(one.worker) if updates else None, _OF_SLOW),
        **staleness_values(updates.staleness if updates else None),
    }
