"""Warnings about the figures of a report, each with advice. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tfdist.bench.report.same_arms import SamePair
from tfdist.bench.report.scaling import scaling_of
from tfdist.bench.report.shared_cores import devices_outnumber_cores, servers_share_cores
from tfdist.bench.report.summary import WRONG, ArmRow
from tfdist.bench.report.turn_warnings import turn_warnings
from tfdist.bench.report.warning import Warning, listed
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName


def warnings_for(rows: Sequence[ArmRow], pairs: Sequence[SamePair]) -> tuple[Warning, ...]:
    """Those that apply, the most severe first. `pairs`: the arms of the same configuration."""
    rows = [row for row in rows if row.measured]
    comparable = (*_no_baseline(rows), *_different_work(rows), *_mixed_scaling(rows))
    arms = [warning for check in _ARM_CHECKS for warning in _arms(check, rows)]
    measuring = (*_arms(_ABOVE_CEILING, rows), *_same_differ(pairs), *turn_warnings(rows))
    return (*_wrong(rows), *comparable, *measuring, *arms)


def _wrong(rows: Sequence[ArmRow]) -> Iterable[Warning]:
    for row in rows:
        if row.status == WRONG:
            yield Warning(
                "wrong-losses",
                f"{row.label} does not compute what it should: {row.reason}.",
                "Do not use its figures; look for lost gradients and for other data or initial weights.",
            )


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


def _same_differ(pairs: Sequence[SamePair]) -> Iterable[Warning]:
    for pair in pairs:
        if pair.differs:
            yield Warning(
                "same-arms-differ",
                f"{pair.arm} is measurably {pair.comparison.verdict} than {pair.other} ({pair.comparison.ratio:.2f} "
                f"times), though they are the same configuration.",
                "Trust no difference of this size; measure again on a quiet machine, with more rounds.",
            )


@dataclass(frozen=True)
class _ArmCheck:
    """A warning that lists the arms it applies to."""

    code: str
    applies: Callable[[ArmRow], bool]
    text: str
    advice: str


def _arms(check: _ArmCheck, rows: Sequence[ArmRow]) -> Iterable[Warning]:
    labels = [row.label for row in rows if check.applies(row)]
    if labels:
        yield Warning(check.code, f"{listed(labels, len(rows))}: {check.text}", check.advice)


def _shares_pool(row: ArmRow) -> bool:
    """Whether its CPU devices use the threads of one process together."""
    several = CATALOG[StrategyName(row.strategy)].many_cpu_devices
    return several and any(record.spec["devices"] > 1 and not record.spec.get("gpus") for record in row.measured)


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
        lambda row: any(devices_outnumber_cores(record) for record in row.measured),
        "more devices than CPU cores, so devices share cores.",
        "With enough cores their throughput would be higher.",
    ),
    _ArmCheck(
        "shared-thread-pool",
        _shares_pool,
        "the CPU devices of one process share its threads, so a device is not exactly one core.",
        "Compare them with each other; against one device per process (multiworker, independent) the cores differ.",
    ),
    _ArmCheck(
        "ps-share-cores",
        lambda row: any(servers_share_cores(record) for record in row.measured),
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
