"""What a reader should know before believing a figure: data, each with its advice. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tfdist.bench.report.baseline import devices_of
from tfdist.bench.report.scaling import scaling_of
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict
from tfdist.models.record import BUSY_BEFORE, Record
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName

BUSY = 0.1
"""Above this share of all cores in use by others, a machine is called busy."""


@dataclass(frozen=True)
class Warning:
    """One thing to know, and what to do about it."""

    code: str
    text: str
    advice: str


def warnings_for(rows: Sequence[ArmRow]) -> tuple[Warning, ...]:
    """All that apply, the gravest first."""
    measured = [row for row in rows if row.measured]
    return tuple(warning for check in _CHECKS for warning in check(measured))


def _no_baseline(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    if rows and all(row.one_device is None for row in rows):
        yield Warning(
            "no-baseline",
            "No one-device arm was measured: there is no speed-up and no efficiency.",
            "Add an arm with strategy one-device.",
        )


def _different_work(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    for row in rows:
        for against in (row.one_device, row.independent):
            if against and against.differences:
                yield Warning(
                    "different-work",
                    f"{row.label} is held against {against.label}, which differs: {'; '.join(against.differences)}.",
                    "Compare arms that do the same work: give the baseline the same settings.",
                )


def _mixed_scaling(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    if scaling_of(rows) == "mixed":
        yield Warning(
            "mixed-scaling",
            "Neither the batch per device nor the global batch is the same in all arms: weak and strong are mixed.",
            "Fix one of them; report the two kinds apart.",
        )


def _few_rounds(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    few = [row for row in rows if row.rounds < FEWEST_ROUNDS]
    if few:
        yield Warning(
            "few-rounds",
            f"{_names(few)}: fewer than {FEWEST_ROUNDS} rounds, so no interval, and every verdict is 'cannot tell'.",
            f"Use --rounds {FEWEST_ROUNDS} or more.",
        )


def _above_the_ceiling(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    above = [row for row in rows if row.independent and row.independent.comparison.verdict is ArmVerdict.FASTER]
    if above:
        yield Warning(
            "above-ceiling",
            f"{_names(above)}: faster than trainings that exchange nothing, which should be the ceiling.",
            "Suspect the measurement: look at the window times of both, and at what else ran.",
        )


def _shared_cores(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    shared = [row for row in rows if any(_devices_outnumber_cores(record) for record in row.measured)]
    if shared:
        yield Warning(
            "shared-cores",
            f"{_names(shared)}: devices are more than the CPU cores, so they share them.",
            "Their throughput is a lower bound of what a machine with enough cores would reach.",
        )


def _devices_outnumber_cores(record: Record) -> bool:
    """Whether pinned devices want more cores than the job's hosts have (all as many as the first)."""
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
            f"{_names(sharing)}: parameter servers run on the cores of the workers of their host, so that every arm "
            f"has the same cores.",
            "Their throughput is a lower bound of parameter servers on hosts of their own.",
        )


def _one_host(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    inside = [row for row in rows if CATALOG[StrategyName(row.strategy)].has_cluster and _on_one_host(row)]
    if inside:
        yield Warning(
            "loopback",
            f"{_names(inside)}: all processes were on one host and talked through its memory, not over a network.",
            "Do not expect these figures of several machines: measure there.",
        )


def _on_one_host(row: ArmRow) -> bool:
    return row.hosts == 1


def _busy(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    runs = [(row, record) for row in rows for record in row.measured]
    busy = [(row, record) for row, record in runs if record.hardware.get(BUSY_BEFORE, 0.0) > BUSY]
    if busy:
        most = max(record.hardware[BUSY_BEFORE] for _, record in busy)
        yield Warning(
            "busy-machine",
            f"Others used the machine just before {len(busy)} of {len(runs)} runs (up to {most:.0%} of all cores).",
            "Close other programs and measure again; rounds spread the harm, they do not remove it.",
        )


def _names(rows: Sequence[ArmRow]) -> str:
    return ", ".join(row.label for row in rows)


_CHECKS: tuple[Callable[[Sequence[ArmRow]], Iterable[Warning]], ...] = (
    _no_baseline,
    _different_work,
    _mixed_scaling,
    _above_the_ceiling,
    _busy,
    _few_rounds,
    _shared_cores,
    _servers_share_cores,
    _one_host,
)
