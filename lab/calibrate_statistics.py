"""How often the intervals and verdicts of bench/statistics.py are right: simulated on noise like the recorded one.

python -m lab.calibrate_statistics [benches]    # writes bench_results/calibration/statistics.md
"""

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from zlib import crc32

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices, one process per core

import numpy as np
import pandas as pd

from tfdist.bench.against import MOST_STARTS, PRECISION
from tfdist.bench.compare.gate import NOISY, gate_needs, is_too_slow
from tfdist.bench.design import Block
from tfdist.bench.noise import FEWEST_SURE
from tfdist.bench.reading import read_folder
from tfdist.bench.statistics import ERROR, FLOOR, ArmVerdict, Comparison, Interval, Pair, Statistics
from tfdist.bench.suites.suite import Suite
from tfdist.launch.text import counted
from tfdist.models.throughput import window_step_ms

ROOT = Path(__file__).parents[1] / "bench_results"
RECORDS = ROOT / "20261124T102831Z-cpu"
DRIFT_SD = 0.06
"""Drift of the machine's speed from the first to the last turn: a random walk, as recorded over three rounds."""
SLOW_DOWN = 0.9
BAD_START = (0.09, 0.16)
"""How much slower the processes of a bad start are for their whole life: three of 90 recorded pairs of starts."""
BOUND = 0.05
"""Bound of `tfdist bench --against --fail-slower`."""

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Scenario:
    """Benches of equal arms."""

    arms: int
    starts_sd: float
    """How much an arm's log throughput differs from one start of its processes to the next."""
    turn_sd: float = 0.03
    """Standard deviation of a turn, given arm and round: 3 % on a quiet machine, 6 % on a noisy one."""
    bad: float = 0.0
    """Share of starts that are bad."""
    unequal: bool = False
    """Whether starts and turns of the arms have half, once and twice these standard deviations."""
    incarnations: int = 4
    rounds_each: int = 3
    """Rounds of each incarnation."""
    precision: float = 0.0
    """Two versions only: no start follows once each ratio is sure to within this share, as with `--against`."""
    fewest: int = FEWEST_SURE
    """Starts before the first one that may be omitted then."""

    @property
    def rounds(self) -> int:
        """Rounds of the bench."""
        return self.incarnations * self.rounds_each


@dataclass(frozen=True)
class Shares:
    """Shares of benches, or of intervals."""

    figure_holds: float
    """Intervals of figures that hold the true value."""
    ratio_holds: float
    """Intervals of one comparison, without the floor, that hold the true ratio."""
    with_floor: float
    """The same with the floor, as a report shows it."""
    called_different: float
    """Benches that call some arm faster or slower than the first, with as many comparisons as there are other arms."""
    slow_down_found: float
    """Benches that find an arm that is 10 % slower than the first."""


@cache
def recorded_noise() -> Array:
    """Log step times of the recorded windows about their run's mean, scaled to standard deviation 1: heavy tails."""
    runs = [np.log(window_step_ms(record)) for record in read_folder(RECORDS, "").records]
    noise = np.concatenate([run - run.mean() for run in runs])
    return np.asarray((noise - noise.mean()) / noise.std())


def simulate(scenario: Scenario, draw: np.random.Generator, pairs: bool = False) -> Array:
    """Log throughputs of arms x rounds, about each arm's true value: its mean over the time of the bench.

    The machine drifts between turns as well, and arms react to drift differently, so that they share it only in part.
    With `pairs`, each arm of the first half and that of the second half have their turns one after the other.
    """
    shape = scenario.arms, scenario.rounds
    spread = np.resize([0.5, 1.0, 2.0] if scenario.unequal else [1.0], scenario.arms)[draw.permutation(scenario.arms)]
    turns = scenario.turn_sd * spread[:, None] * draw.choice(recorded_noise(), shape)
    starts = scenario.starts_sd * spread[:, None] * draw.standard_normal((scenario.arms, scenario.incarnations))
    starts -= draw.uniform(*BAD_START, starts.shape) * (draw.random(starts.shape) < scenario.bad)
    walk = np.cumsum(draw.standard_normal(turns.size)) * DRIFT_SD / math.sqrt(turns.size)
    order = np.array([positions(scenario.arms, pairs, draw) for _ in range(scenario.rounds)]).T
    drift = (walk - walk.mean())[order + scenario.arms * np.arange(scenario.rounds)]
    of_turns = turns + starts[:, incarnations(scenario)] + scenario.bad * np.mean(BAD_START)
    return np.asarray(of_turns + draw.uniform(0.5, 1.5, (scenario.arms, 1)) * drift)


def positions(arms: int, pairs: bool, draw: np.random.Generator) -> Array:
    """The place of each arm's turn in a round."""
    if not pairs:
        return draw.permutation(arms)
    half = arms // 2
    first = 2 * draw.permutation(half)
    swapped = draw.integers(0, 2, half)
    return np.concatenate([first + swapped, first + 1 - swapped])


def incarnations(scenario: Scenario) -> list[int]:
    """The incarnation of each round."""
    return [number // scenario.rounds_each for number in range(scenario.rounds)]


def statistics(logs: Array, scenario: Scenario, floor: float = FLOOR, groups: int = 1) -> Statistics:
    """The statistics of a bench with these log throughputs; of two versions, each arm and its base are a group."""
    blocks = [
        [Block(0, number, start, str(group)) for number, start in enumerate(incarnations(scenario))]
        for group in range(groups)
    ]
    rates = {
        str(arm): dict(zip(blocks[arm % groups], np.exp(row).tolist(), strict=True)) for arm, row in enumerate(logs)
    }
    return Statistics(rates, floor)


def holds(interval: Interval | None, value: float) -> bool:
    """Whether it holds the true value."""
    return interval is not None and interval.low <= value <= interval.high


def one_bench(scenario: Scenario, seed: int) -> tuple[float, ...]:
    """The shares of a single bench."""
    logs = simulate(scenario, np.random.default_rng(seed))
    equal = statistics(logs, scenario)
    pairs = [(str(arm), "0") for arm in range(1, scenario.arms)]
    figures = [equal.figure(str(arm)) for arm in range(scenario.arms)]
    figure_holds = [figure is not None and holds(figure.interval, 1.0) for figure in figures]
    alone = [each.compare(pairs[:1])[0].interval for each in (statistics(logs, scenario, floor=0.0), equal)]
    different = any(each.verdict is not ArmVerdict.CANNOT_TELL for each in equal.compare(pairs))
    logs[1] += math.log(SLOW_DOWN)
    slowed = statistics(logs, scenario).compare(pairs)[0].verdict is ArmVerdict.SLOWER
    return float(np.mean(figure_holds)), *(holds(each, 1.0) for each in alone), different, slowed


def shares(scenario: Scenario, benches: int, seed: int = 0) -> Shares:
    """The shares of a number of benches."""
    return Shares(*np.mean([one_bench(scenario, seed + number) for number in range(benches)], axis=0).tolist())


@dataclass(frozen=True)
class VersionShares:
    """Shares of benches that measure a base and a new version of each arm."""

    called_different: float
    """Equal versions of which some arm is called faster or slower."""
    fails: float
    """Equal versions that fail a gate of BOUND."""
    one_found: float
    """Benches that call the one arm slower which became 10 % slower."""
    all_found: float
    """Benches that call every arm slower when all became 10 % slower."""
    one_fails: float
    """Benches that fail the gate because of that one arm."""
    measured_starts: float
    """Their number, on average."""


def until_sure(logs: Array, scenario: Scenario, pairs: Sequence[Pair]) -> tuple[Array, Scenario]:
    """What `--against` measures of a bench with the most starts: up to the one after which each ratio is sure enough."""
    for number in range(scenario.fewest, scenario.incarnations + 1):
        measured = replace(scenario, incarnations=number)
        found = statistics(logs[:, : measured.rounds], measured, groups=len(pairs))
        if all(found.ratio(*pair).half_width(ERROR / len(pairs)) <= scenario.precision for pair in pairs):
            break
    return logs[:, : measured.rounds], measured


def one_bench_of_versions(scenario: Scenario, seed: int) -> tuple[float, ...]:
    """The shares of a single bench, whose arms are bases and, in the other half, their new versions."""
    logs = simulate(scenario, np.random.default_rng(seed), pairs=True)
    half = scenario.arms // 2
    pairs = [(str(half + arm), str(arm)) for arm in range(half)]
    logs, scenario = until_sure(logs, scenario, pairs)

    def compare(slower: int) -> tuple[Comparison, ...]:
        changed = logs.copy()
        changed[half : half + slower] += math.log(SLOW_DOWN)
        return statistics(changed, scenario, groups=half).compare(pairs)

    equal, one, every = (compare(slower) for slower in (0, 1, half))
    slower = [[each.verdict is ArmVerdict.SLOWER for each in found] for found in (one, every)]
    return (
        any(each.verdict is not ArmVerdict.CANNOT_TELL for each in equal),
        any(is_too_slow(each, BOUND) for each in equal),
        slower[0][0],
        all(slower[1]),
        is_too_slow(one[0], BOUND),
        scenario.incarnations,
    )


def shares_of_versions(scenario: Scenario, benches: int, seed: int = 0) -> VersionShares:
    """The shares of a number of benches of two versions."""
    found = [one_bench_of_versions(scenario, seed + number) for number in range(benches)]
    return VersionShares(*np.mean(found, axis=0).tolist())


START_EFFECTS = (0.0, 0.01, 0.023)
"""Standard deviations from start to start."""
FOUR = [
    Scenario(arms, starts_sd, turn_sd, bad, unequal)
    for unequal, arms, turn_sd, starts_sd, bad in product(
        (False, True), (2, 3, 10), (0.03, 0.06), START_EFFECTS, (0.0, 0.02)
    )
    if arms > 2 or not unequal
]
"""The default: 4 starts of 3 rounds."""
OTHERS = [
    Scenario(arms, starts_sd, incarnations=number)
    for number, arms, starts_sd in product((1, 2, 3, 6, 12), (2, 10), START_EFFECTS)
]
TURNS = Suite.rounds // Suite.incarnations
GATES = {arms: gate_needs(arms, BOUND, TURNS) for arms in (1, 2)}
"""Of one program with so many arms."""
VERSIONS = [
    Scenario(2 * arms, starts_sd, turn_sd, 0.02, False, most, TURNS, precision, fewest)
    for arms, turn_sd, starts_sd in product(GATES, (0.03, 0.06, 0.1), (0.01, 0.023))
    for most, precision, fewest in (
        (MOST_STARTS, PRECISION, FEWEST_SURE),
        (NOISY * GATES[arms][0], GATES[arms][1], GATES[arms][0]),
    )
]
"""Each with bases and new versions, as they are compared without a gate and with one."""

VERSION_BENCHES = 1000

TEXT = """# Calibration of intervals and verdicts

How often the intervals and verdicts of `bench/statistics.py` are right in simulated benches of equal arms. Written by
`python -m lab.calibrate_statistics`. Each row is of {benches} benches (of two versions, of 1,000): a share of 95 % is known to +-{error:.1f} (standard error).

- "turn": the standard deviation of a turn, given arm and round, in %. Drawn from the step times of the recorded windows (heavy tails).
- "starts": that of an arm's throughput from one start of its processes to the next, in %.
- "bad": the share of starts, in %, whose processes are 9 to 16 % slower for their whole life.
- "unequal": a third of the arms each has half, once and twice these standard deviations.
- Drift: a random walk of 6 % from the first to the last turn, also between the turns of a round; arms react to it by half to one and a half times as
  much, so that they share it only in part.

Shares in %, and the targets; **bold** misses the target by more than twice its standard error:

- "figure holds": 95 % intervals of an arm's images/s that hold the true value: at least 93.
- "ratio holds": the same of one ratio without the floor: 93 to 97, with fewer than four starts at least 93.
- "with floor": the same as reports show it, with the floor of 1 %: at least 93.
- "called different": benches that call any arm faster or slower than the first, all arms compared with it (Holm): at most 5.
- "10 % found": benches that call an arm slower that is 10 % slower than the first. No target: it says how small a difference a bench finds.

{missed} of {rows} rows miss a target.

## Four starts of three rounds, the default

{four}

## Other numbers of starts

With fewer than four, the variance of starts is partly assumed (2.3 %), and differences below 5 % have no verdict.

{others}

## Two versions of each arm (`tfdist bench --against`)

Each arm twice, base and new, their turns one after the other; 2 % bad starts. Each arm is compared with its base by the differences of the two, start by start: what slows both alike, and not
the other arms, changes nothing. "equal": versions that are equal are called different, or fail a gate of 5 %; "10 % found": a slow-down
of 10 % in one arm, or in all of them, is called slower; "10 % fails": that in one arm fails the gate. Starts are added until each ratio is sure to within a share: in the first row of each
pair {precision:.0%}, from {fewest} to {most} starts; in the second row as with `--fail-slower 5%`, {gates}. "incarnations" is their mean.

{versions}
"""


def row(benches: int, scenario: Scenario) -> dict[str, float | str]:
    """A scenario and its shares, in per cent."""
    return _percent(scenario, asdict(shares(scenario, benches, _seed(scenario))))


def row_of_versions(benches: int, scenario: Scenario) -> dict[str, float | str]:
    """The same of two versions of each arm."""
    found = asdict(shares_of_versions(scenario, benches, _seed(scenario)))
    starts = found.pop("measured_starts")
    return {**_percent(scenario, found), "measured_starts": starts}


def _seed(scenario: Scenario) -> int:
    """Another one for each scenario, so that their errors are independent."""
    return crc32(repr(scenario).encode())


def _percent(scenario: Scenario, found: Mapping[str, float]) -> dict[str, float | str]:
    sizes = {name: 100 * getattr(scenario, name) for name in ("starts_sd", "turn_sd", "bad")}
    return {**asdict(scenario), **sizes, **{name: 100 * share for name, share in found.items()}}


NAMES = {
    "incarnations": "incarnations", "arms": "arms", "turn_sd": "turn", "starts_sd": "starts", "bad": "bad",
    "unequal": "spreads", "figure_holds": "figure holds", "ratio_holds": "ratio holds", "with_floor": "with floor",
    "called_different": "called different", "slow_down_found": "10 % found",
}  # fmt: skip
VERSION_NAMES = {
    "measured_starts": "incarnations", "arms": "arms and bases", "turn_sd": "turn", "starts_sd": "starts",
    "called_different": "equal: called different", "fails": "equal: fails", "one_found": "10 % found: one",
    "all_found": "10 % found: all", "one_fails": "10 % fails",
}  # fmt: skip


def misses_of(benches: int) -> dict[str, Callable[[float], bool]]:
    """When a share, in per cent of this number of benches, misses its target by more than two standard errors."""
    error = 200 * math.sqrt(0.95 * 0.05 / benches)
    return {
        "figure_holds": lambda share: share < 93 - error,
        "ratio_holds": lambda share: not 93 - error <= share <= 97 + error,
        "with_floor": lambda share: share < 93 - error,
        "called_different": lambda share: share > 5 + error,
    }


Misses = Mapping[str, Callable[[float], bool]]


def markdown(table: pd.DataFrame, names: Mapping[str, str], misses: Misses) -> str:
    """The columns of `names`, with misses in bold."""

    def cell(name: str, value: float | bool) -> str:
        if name == "unequal":
            return "unequal" if value else "equal"
        text = f"{value:.1f}" if isinstance(value, float) else str(value)
        return f"**{text}**" if name in misses and misses[name](value) else text

    rows = [[cell(name, each[name]) for name in names] for each in table.to_dict("records")]
    return "\n".join("| " + " | ".join(line) + " |" for line in [[*names.values()], ["--:"] * len(names), *rows])


def rows_that_miss(table: pd.DataFrame, misses: Misses) -> int:
    """Number of rows with a share that misses its target."""
    return sum(any(missed(each[name]) for name, missed in misses.items()) for each in table.to_dict("records"))


def main(benches: int) -> None:
    """Simulate all scenarios, and write statistics.md."""
    with ProcessPoolExecutor() as pool:
        table = pd.DataFrame(list(pool.map(partial(row, benches), [*FOUR, *OTHERS])))
        versions = pd.DataFrame(list(pool.map(partial(row_of_versions, VERSION_BENCHES), VERSIONS)))
    write(table, versions, benches)


def write(table: pd.DataFrame, versions: pd.DataFrame, benches: int) -> None:
    """Write the rows of all scenarios, in per cent of so many benches."""
    folder = ROOT / "calibration"
    folder.mkdir(exist_ok=True)
    misses, version_misses = misses_of(benches), misses_of(VERSION_BENCHES)
    few = misses | {"ratio_holds": misses["with_floor"]}
    text = TEXT.format(
        benches=benches,
        error=100 * math.sqrt(0.95 * 0.05 / benches),
        missed=rows_that_miss(table[table.incarnations == 4], misses)
        + rows_that_miss(table[table.incarnations != 4], few),
        rows=len(table),
        four=markdown(table[table.incarnations == 4], NAMES, misses),
        others=markdown(table[table.incarnations != 4], NAMES, few),
        versions=markdown(
            versions, VERSION_NAMES, dict.fromkeys(("called_different", "fails"), version_misses["called_different"])
        ),
        precision=PRECISION,
        fewest=FEWEST_SURE,
        most=MOST_STARTS,
        gates="; ".join(
            f"{counted(arms, 'arm')}: {sure:.1%}, from {fewest} to {NOISY * fewest}"
            for arms, (fewest, sure) in GATES.items()
        ),
    )
    (folder / "statistics.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
