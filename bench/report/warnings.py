"""Warnings about the figures of a report and its turns (other load, stolen CPU time, drift), each with advice. Pure.

Pairs of arms that are the same configuration (A/A) tell how large the noise of the report itself is.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, linear_regression, pvariance
from typing import Any

from tfdist.bench.disturbance import LIMIT, Cause, disturbances
from tfdist.bench.report.claims import devices_outnumber_cores, servers_share_cores
from tfdist.bench.report.columns import scaling_of
from tfdist.bench.report.section import Warning, listed
from tfdist.bench.report.summary import WRONG, ArmRow, statistics_of
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict, Comparison
from tfdist.models.throughput import measuring_ranks
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import Communication, StrategyName

_NO_EFFECT = ("format", "steps", "epochs", "warmup_steps", "steps_per_window", "timeout_collective_s", "evaluate",
              "evaluate_turns")  # fmt: skip
"""Fields of a spec that do not affect a turn."""


@dataclass(frozen=True)
class SamePair:
    """Two arms of the same configuration."""

    arm: str
    """`ArmRow.label`."""
    other: str
    comparison: Comparison
    """`arm` over `other`."""

    @property
    def differs(self) -> bool:
        """The report finds a difference where there is none."""
        return self.comparison.verdict is not ArmVerdict.CANNOT_TELL

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        interval = self.comparison.interval
        return {
            "arm": self.arm,
            "other": self.other,
            "ratio": self.comparison.ratio,
            "low": interval.low if interval else None,
            "high": interval.high if interval else None,
            "rounds": self.comparison.rounds,
        }


def same_pairs(rows: Sequence[ArmRow]) -> tuple[SamePair, ...]:
    """Each later arm with the first one of the same configuration and folder."""
    first: dict[tuple[Any, ...], str] = {}
    pairs = []
    for row in rows:
        if row.measured:
            label = first.setdefault((row.folder, row.hosts, *_effective(row.measured[0].spec)), row.label)
            pairs += [(row.label, label)] if label != row.label else []
    comparisons = statistics_of(rows).compare(pairs)
    return tuple(SamePair(*pair, comparison) for pair, comparison in zip(pairs, comparisons, strict=True))


def _effective(spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What happens in a turn. Between workers on CPUs TensorFlow's automatic choice is the ring."""
    values = dict(spec)
    ring = values.get("strategy") == StrategyName.MULTI_WORKER and not values.get("gpus")
    if ring and values.get("communication") == Communication.AUTO:
        values["communication"] = Communication.RING
    return tuple(sorted((key, str(value)) for key, value in values.items() if key not in _NO_EFFECT))


_NOISES = 2
"""A drift exceeds this many standard errors: two arms without any differ by more than LIMIT in every third bench."""


@dataclass(frozen=True)
class Drift:
    """A change of images/s over the rounds of arms that took turns."""

    first: int
    last: int
    change: float
    """Change from the first to the last round on the straight line through all rounds; 0.1: 10 % faster."""
    arms: tuple[str, ...]
    """The labels of those that changed by more than LIMIT in this direction."""


def drifts_of(rows: Sequence[ArmRow]) -> Iterator[Drift]:
    """Those over LIMIT, of each folder and group."""
    groups = dict.fromkeys((row.folder, block.group) for row in rows for block in row.rates)
    for folder, group in groups:
        logs = {
            row.label: {block.round: math.log(rate) for block, rate in row.rates.items() if block.group == group}
            for row in rows
            if row.folder == folder
        }
        drift = _drift({label: rounds for label, rounds in logs.items() if rounds})
        if drift and abs(drift.change) > LIMIT:
            yield drift


def _drift(logs: Mapping[str, Mapping[int, float]]) -> Drift | None:
    """The change on the line of least squares. None: too few arms with all rounds, or no more than noise."""
    rounds = sorted(set().union(*logs.values()))
    complete = {label: [arm[number] for number in rounds] for label, arm in logs.items() if len(arm) == len(rounds)}
    if len(complete) < 2 or len(rounds) < FEWEST_ROUNDS:
        return None

    def change(turns: Sequence[float]) -> float:
        return linear_regression(rounds, turns).slope * (rounds[-1] - rounds[0])

    blocks = [fmean(turns) for turns in zip(*complete.values(), strict=True)]
    # the standard error of the change, from the rest of log images/s = arm + round + rest
    squares = sum(
        (log - fmean(arm) - block + fmean(blocks)) ** 2
        for arm in complete.values()
        for log, block in zip(arm, blocks, strict=True)
    )
    variance = squares / ((len(complete) - 1) * (len(rounds) - 1))
    slope_error = math.sqrt(variance / len(complete) / (pvariance(rounds) * len(rounds)))
    if abs(change(blocks)) <= _NOISES * slope_error * (rounds[-1] - rounds[0]):
        return None
    arms = [label for label, arm in complete.items() if math.copysign(1, change(blocks)) * change(arm) > LIMIT]
    return Drift(rounds[0], rounds[-1], math.expm1(change(blocks)), tuple(arms))


_LIMIT = f"{LIMIT:.0%}"
_TEXTS: Mapping[Cause, tuple[str, str, str]] = {
    "others": (
        "busy-machine",
        f"other programs used more than {_LIMIT} of a host's cores",
        "Close other programs and measure again; more rounds do not remove their effect.",
    ),
    "steal": (
        "stolen-time",
        f"other virtual machines used more than {_LIMIT} of a host's cores",
        "Measure on a machine that is not shared, or at another time.",
    ),
    "drift": (
        "drift-in-turn",
        f"the step time changed by more than {_LIMIT} from the first to the second half",
        "Look for throttling and other load; if it is the arm's own, set a longer warmup in the suite.",
    ),
}
"""Code, text and advice of each cause."""
_MANY_ARMS = 5
"""Fewer than these are always listed with the rounds of each."""


def turn_warnings(rows: Sequence[ArmRow]) -> Iterator[Warning]:
    """Those that apply, with the arms and rounds that they touch."""
    turns = [(row, record) for row in rows for record in row.measured]
    found: dict[Cause, dict[str, list[int]]] = {cause: {} for cause in _TEXTS}
    for row, record in turns:
        for one in disturbances({rank.task: rank.windows for rank in measuring_ranks(record)}, record.hosts_usage):
            found[one.cause].setdefault(row.label, []).append(record.round)
    for cause, touched in found.items():
        if touched:
            code, text, advice = _TEXTS[cause]
            number = sum(map(len, touched.values()))
            where = f"all {number} turns {text}"
            if number < len(turns):
                where = f"{number} of {len(turns)} turns {text}: {_with_rounds(touched, len(rows))}"
            yield Warning(code, f"In {where}.", advice)
    for drift in drifts_of(rows):
        direction = "slower" if drift.change < 0 else "faster"
        arms = f": {listed(drift.arms, len(rows))}" if drift.arms else ""
        yield Warning(
            "drift-between-rounds",
            f"From round {drift.first} to round {drift.last} the arms together became {abs(drift.change):.0%} "
            f"{direction}{arms}.",
            "Ratios are free of what all arms share, images/s are not: let the machine settle and measure again.",
        )


def _with_rounds(touched: Mapping[str, Sequence[int]], rows: int) -> str:
    """`a (round 1), b (rounds 2-4, 7)`; of many arms that are all touched, `all arms (rounds 1-4, 7)`."""
    if len(touched) == rows >= _MANY_ARMS:
        touched = {"all arms": [number for rounds in touched.values() for number in rounds]}
    texts = []
    for label, rounds in touched.items():
        ranges = []
        # consecutive numbers differ from their positions by the same amount
        for _, group in groupby(enumerate(sorted(set(rounds))), key=lambda entry: entry[1] - entry[0]):
            first, *rest = (number for _, number in group)
            ranges.append(f"{first}-{rest[-1]}" if rest else str(first))
        texts.append(f"{label} ({'round' if len(set(rounds)) == 1 else 'rounds'} {', '.join(ranges)})")
    return ", ".join(texts)


def warnings_for(rows: Sequence[ArmRow], pairs: Sequence[SamePair]) -> Iterator[Warning]:
    """Those that apply, the most severe first. `pairs`: the arms of the same configuration."""
    rows = [row for row in rows if row.measured]
    for row in rows:
        if row.status == WRONG:
            yield Warning(
                "wrong-losses",
                f"{row.label} does not compute what it should: {row.reason}.",
                "Do not use its figures; look for lost gradients and for other data or initial weights.",
            )
    if rows and all(row.one_device is None for row in rows):
        yield Warning(
            "no-baseline",
            "No one-device arm was measured, so there is no speed-up and no efficiency.",
            "Add an arm with strategy one-device.",
        )
    for row in rows:
        for versus in (row.one_device, row.independent):
            if versus and versus.differences:
                yield Warning(
                    "different-work",
                    f"{row.label} is compared with {versus.label}, which differs: {'; '.join(versus.differences)}.",
                    "Give the baseline the same settings.",
                )
    if scaling_of(rows) == "mixed":
        yield Warning(
            "mixed-scaling",
            "Neither the batch per device nor the global batch is the same in all arms.",
            "Fix one of them, and report weak and strong scaling separately.",
        )
    yield from _of_arms(_ABOVE_CEILING, rows)
    for pair in pairs:
        if pair.differs:
            yield Warning(
                "same-arms-differ",
                f"{pair.arm} is measurably {pair.comparison.verdict} than {pair.other} ({pair.comparison.ratio:.2f} "
                f"times), though they are the same configuration.",
                "Trust no difference of this size; measure again on a quiet machine, with more rounds.",
            )
    yield from turn_warnings(rows)
    for check in _ARM_CHECKS:
        yield from _of_arms(check, rows)


@dataclass(frozen=True)
class _ArmCheck:
    """A warning that lists the arms it applies to."""

    code: str
    applies: Callable[[ArmRow], bool]
    text: str
    advice: str


def _of_arms(check: _ArmCheck, rows: Sequence[ArmRow]) -> Iterator[Warning]:
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
        lambda row: row.rounds_planned < FEWEST_ROUNDS,
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
