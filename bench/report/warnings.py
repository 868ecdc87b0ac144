"""Warnings about the figures of a report and its turns (other load, stolen CPU time, drift), each with advice. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from statistics import fmean, linear_regression, median, pvariance

from tfdist.bench.disturbance import LIMIT, Cause
from tfdist.bench.noise import ASSUMED_SD, FEWEST_STARTS
from tfdist.bench.report.arm_records import devices_outnumber_cores, disturbances_of
from tfdist.bench.report.certainty import odd_starts, odd_text
from tfdist.bench.report.columns import scaling_of
from tfdist.bench.report.section import Warning
from tfdist.bench.report.summary import WRONG, ArmRow
from tfdist.bench.statistics import FEWEST_ROUNDS, LEAST_OF_FEW_STARTS
from tfdist.launch.text import shortened
from tfdist.models.strategy_check import StrategyCheck
from tfdist.strategies.catalog import Exchange
from tfdist.strategies.options import StrategyName


def _names(arms: Sequence[str], measured: int) -> str:
    """The arms that a warning is about; `all arms` if they are all of several `measured` ones."""
    return "all arms" if len(arms) == measured > 1 else ", ".join(arms)


_NOISES = 2
"""A drift exceeds this many standard errors: two arms without any differ by more than LIMIT in every third bench."""


def _drift_warnings(rows: Sequence[ArmRow]) -> Iterator[Warning]:
    """Changes of images/s over the rounds of arms that took turns, those over LIMIT, of each folder and group."""
    groups = dict.fromkeys((row.folder, block.group) for row in rows for block in row.rates if block.group >= 0)
    for folder, group in groups:
        logs = {
            row.label: {block.round: math.log(rate) for block, rate in row.rates.items() if block.group == group}
            for row in rows
            if row.folder == folder
        }
        change, labels = _drift({label: rounds for label, rounds in logs.items() if rounds})
        if abs(change) > LIMIT:
            numbers = [number for rounds in logs.values() for number in rounds]
            direction = "slower" if change < 0 else "faster"
            arms = f": {_names(labels, len(rows))}" if labels else ""
            yield Warning(
                "drift-between-rounds",
                f"From round {min(numbers)} to round {max(numbers)} the arms together became {abs(change):.0%} "
                f"{direction}{arms}.",
                "Ratios are free of what all arms share, throughput is not: let the machine settle and measure again.",
            )


def _drift(logs: Mapping[str, Mapping[int, float]]) -> tuple[float, Sequence[str]]:
    """The change from the first to the last round, on the line of least squares, and the arms that changed alike.

    0.1: 10 % faster; 0.0: too few arms with all rounds, or no more than noise. The arms are the labels of those that
    changed by more than LIMIT in this direction.
    """
    rounds = sorted(set().union(*logs.values()))
    complete = {label: [arm[number] for number in rounds] for label, arm in logs.items() if len(arm) == len(rounds)}
    if len(complete) < 2 or len(rounds) < FEWEST_ROUNDS:
        return 0.0, ()

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
        return 0.0, ()
    arms = [label for label, arm in complete.items() if math.copysign(1, change(blocks)) * change(arm) > LIMIT]
    return math.expm1(change(blocks)), arms


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
    """Warnings about disturbed turns, with the arms and rounds of each, and about drift from round to round."""
    turns = [(row, record) for row in rows for record in row.measured]
    found: dict[Cause, dict[str, list[int]]] = {cause: {} for cause in _TEXTS}
    for row, record in turns:
        for one in disturbances_of(record):
            found[one.cause].setdefault(row.label, []).append(record.round)
    for cause, touched in found.items():
        if touched:
            code, text, advice = _TEXTS[cause]
            number = sum(map(len, touched.values()))
            where = f"all {number} turns {text}"
            if number < len(turns):
                where = f"{number} of {len(turns)} turns {text}: {_with_rounds(touched, len(rows))}"
            yield Warning(code, f"In {where}.", advice)
    yield from _drift_warnings(rows)


_IDLE = 0.1
"""CPU seconds in a second below which a task does nothing."""
_IDLE_ADVICE = (
    "Unless the program itself waits there, the end of a tf.data iterator waits for threads: keep one iterator, with "
    "repeat() and steps_per_epoch."
)


def idle_warnings(rows: Sequence[ArmRow]) -> Iterator[Warning]:
    """Windows of three times the usual length, and ends of epochs of a second, almost without CPU time, by arm."""
    for row in rows:
        found = [
            (f"in round {record.round}", rank.task, window, window.usage)
            for record in row.measured
            for rank in record.ranks
            for window in rank.windows
            if window.steps and window.usage and not window.usage.gpus
        ]
        usual = median([window.elapsed_s / window.steps for _, _, window, _ in found] or [0.0])
        idle = []
        for when, task, window, usage in found:
            if window.elapsed_s > max(1, 3 * usual * window.steps) and usage.cpu_s < _IDLE * window.elapsed_s:
                idle.append(f"{task} {window.elapsed_s:.1f} s {when}")
            if window.between_s > window.epochs and window.between_cpu_s < _IDLE * window.between_s:
                idle.append(f"{task} {window.between_s:.1f} s between epochs {when}")
        if idle and row.exchange is not Exchange.ASYNC:  # a leader needs no CPU time while its workers compute
            text = f"{row.label} neither computed nor exchanged: {shortened(idle)}."
            yield Warning("idle-task", text, _IDLE_ADVICE)


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


def warnings_for(rows: Sequence[ArmRow]) -> Iterator[Warning]:
    """The warnings that apply to these arms, the most severe first."""
    rows = [row for row in rows if row.measured]
    yield from _work_warnings(rows)
    yield from _comparison_warnings(rows)
    for row in rows:
        if row.contradiction:
            yield Warning(
                "contradiction",
                f"{row.label}: {row.contradiction}. Its figure or the baseline's is not what the name says.",
                "Check that the program trains under each arm's strategy, and counts the examples of all replicas.",
            )
    for odd in odd_starts(rows):
        yield Warning(
            "odd-start",
            f"{odd_text(odd)}, for its whole life.",
            "Its figure contains it, and its interval is wide: measure with more --incarnations.",
        )
    yield from turn_warnings(rows)
    yield from idle_warnings(rows)
    yield from _plan_warnings(rows)


def _work_warnings(rows: Sequence[ArmRow]) -> Iterator[Warning]:
    """Arms that may compute something else than their names say, or surely do."""
    for row in rows:
        if unknown := row.strategy_note(StrategyCheck.UNKNOWN):
            yield Warning("unknown-strategy", f"{row.label}: {unknown.partition('; ')[0]}.", "Its name may be wrong.")
        if row.status == WRONG:
            yield Warning(
                "wrong-losses",
                f"{row.label} does not compute what it should: {row.reason}.",
                "Do not use its figures; look for lost gradients and for other data or initial weights.",
            )


def _comparison_warnings(rows: Sequence[ArmRow]) -> Iterator[Warning]:
    """A missing baseline, and arms of different work."""
    if rows and all(row.one_device is None for row in rows):
        missing, advice = "No one-device arm was measured", "Add an arm with strategy one-device."
        if chosen := rows[0].baseline:
            missing, advice = f"{chosen}, the baseline, has no figure", "Measure it, or choose another --baseline."
        yield Warning("no-baseline", f"{missing}, so there is no speed-up and no efficiency.", advice)
    for row in rows:
        for versus in (row.one_device, row.independent):
            if versus and versus.differences and row.strategy is not StrategyName.ONE_DEVICE and row.baseline is None:
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


def _plan_warnings(rows: Sequence[ArmRow]) -> Iterator[Warning]:
    """Arms with too few rounds, starts or cores."""
    if few := [row.label for row in rows if row.rounds_planned < FEWEST_ROUNDS]:
        yield Warning(
            "few-rounds",
            f"{_names(few, len(rows))}: fewer than {FEWEST_ROUNDS} rounds, so there is no verdict.",
            f"Run 'tfdist bench' with --rounds {FEWEST_STARTS} or more.",
        )
    assumed = [
        row.label
        for row in rows
        if row.rounds_planned >= FEWEST_ROUNDS and len(row.starts) < FEWEST_STARTS and not row.dropped
    ]
    if assumed:
        yield Warning(
            "few-starts",
            f"{_names(assumed, len(rows))}: fewer than {FEWEST_STARTS} starts, so how much starts differ is assumed "
            f"({ASSUMED_SD:.1%}), and differences below {LEAST_OF_FEW_STARTS:.0%} have no verdict.",
            f"Run 'tfdist bench' with {'--all and ' if any(row.looks > 1 for row in rows) else ''}"
            f"--incarnations {FEWEST_STARTS} or more.",
        )
    if shared := [row.label for row in rows if any(map(devices_outnumber_cores, row.measured))]:
        yield Warning(
            "shared-cores",
            f"{_names(shared, len(rows))}: more devices than CPU cores, so devices share cores.",
            "With enough cores their throughput would be higher.",
        )
