"""How often the intervals and verdicts of bench/statistics.py are right: simulated on noise like the recorded one.

python lab/calibrate_statistics.py [benches]    # writes bench_results/calibration/statistics.*
"""

import math
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices, one process per core

import numpy as np
import pandas as pd

from tfdist.bench.design import Block
from tfdist.bench.reading import read_folder
from tfdist.bench.statistics import ArmVerdict, Interval, Statistics
from tfdist.models.throughput import window_step_ms

ROOT = Path(__file__).parents[1] / "bench_results"
RECORDS = ROOT / "20261121T223402Z-cpu"
TURN_SD = 0.06
"""Of a turn, given arm and round, on a noisy machine; 2.8 % in RECORDS."""
DRIFT_SD = 0.06
"""Of the machine's speed from the first to the last turn: a random walk, as recorded over three rounds."""
SLOW_DOWN = 0.9

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Scenario:
    """Benches of equal arms."""

    rounds: int
    arms: int
    starts_sd: float
    """How much an arm's log throughput differs from one start of its processes to the next."""
    unequal: bool
    """Whether turns of the arms have standard deviations of 3, 6 and 12 % instead of 6."""
    incarnations: int = 2
    turn_sd: float = TURN_SD


@dataclass(frozen=True)
class Shares:
    """Shares of benches, or of intervals."""

    figure_holds: float
    """Intervals of figures that hold the true value."""
    ratio_holds: float
    """Intervals of one comparison that hold the true ratio."""
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


def simulate(scenario: Scenario, draw: np.random.Generator) -> Array:
    """Log throughputs of arms x rounds, about each arm's true value: its mean over the time of the bench.

    The machine drifts between turns as well, and arms react to drift differently, so that they share it only in part.
    """
    shape = scenario.arms, scenario.rounds
    spread = np.resize([0.5, 1.0, 2.0] if scenario.unequal else [1.0], scenario.arms)[draw.permutation(scenario.arms)]
    turns = scenario.turn_sd * spread[:, None] * draw.choice(recorded_noise(), shape)
    starts = scenario.starts_sd * draw.standard_normal((scenario.arms, scenario.rounds))[:, incarnations(scenario)]
    walk = np.cumsum(draw.standard_normal(turns.size)) * DRIFT_SD / math.sqrt(turns.size)
    order = np.array([draw.permutation(scenario.arms) for _ in range(scenario.rounds)]).T
    drift = (walk - walk.mean())[order + scenario.arms * np.arange(scenario.rounds)]
    return np.asarray(turns + starts + draw.uniform(0.5, 1.5, (scenario.arms, 1)) * drift)


def incarnations(scenario: Scenario) -> list[int]:
    """Of each round."""
    return [number * scenario.incarnations // scenario.rounds for number in range(scenario.rounds)]


def statistics(logs: Array, scenario: Scenario) -> Statistics:
    """The statistics of a bench with these log throughputs."""
    blocks = [Block(0, number, start) for number, start in enumerate(incarnations(scenario))]
    return Statistics({str(arm): dict(zip(blocks, np.exp(row).tolist(), strict=True)) for arm, row in enumerate(logs)})


def holds(interval: Interval | None, value: float) -> bool:
    """Whether it holds the true value."""
    return interval is not None and interval.low <= value <= interval.high


def one_bench(scenario: Scenario, seed: int) -> tuple[float, float, float, float]:
    """The shares of a single bench."""
    logs = simulate(scenario, np.random.default_rng(seed))
    equal = statistics(logs, scenario)
    pairs = [(str(arm), "0") for arm in range(1, scenario.arms)]
    figures = [equal.figure(str(arm)) for arm in range(scenario.arms)]
    figure_holds = [figure is not None and holds(figure.interval, 1.0) for figure in figures]
    (alone,) = equal.compare(pairs[:1])
    different = any(each.verdict is not ArmVerdict.CANNOT_TELL for each in equal.compare(pairs))
    logs[1] += math.log(SLOW_DOWN)
    slowed = statistics(logs, scenario).compare(pairs)[0].verdict is ArmVerdict.SLOWER
    return float(np.mean(figure_holds)), holds(alone.interval, 1.0), different, slowed


def shares(scenario: Scenario, benches: int, seed: int = 0) -> Shares:
    """Over a number of benches."""
    return Shares(*np.mean([one_bench(scenario, seed + number) for number in range(benches)], axis=0).tolist())


def bootstrap_holds(rounds: int, benches: int, seed: int = 0) -> float:
    """The same for the percentile bootstrap of the median ratio of two arms, the former method."""
    draw = np.random.default_rng(seed)
    logs = [simulate(Scenario(rounds, 2, 0.0, False), draw) for _ in range(benches)]
    ratios = np.array([one - other for one, other in logs])
    medians = np.median(ratios[:, draw.integers(0, rounds, (2000, rounds))], axis=2)
    low, high = np.quantile(medians, [0.025, 0.975], axis=1)
    return float(np.mean((low <= 0) & (high >= 0)))


DEFAULT = Scenario(12, 10, 0.0, False)
"""Suite `cpu`: ten arms, 12 rounds of two incarnations."""
GRID = [
    Scenario(rounds, arms, starts_sd, unequal)
    for unequal, starts_sd, arms, rounds in product((False, True), (0.0, 0.01, 0.02), (2, 3, 10), (3, 6, 12, 24))
]
MORE_STARTS = [
    Scenario(12, arms, starts_sd, False, starts)
    for starts_sd, arms, starts in product((0.01, 0.02), (2, 3, 10), (4, 6, 12))
]
QUIET = [Scenario(12, arms, starts_sd, False, turn_sd=0.015) for starts_sd, arms in product((0.0, 0.01), (2, 10))]


TEXT = """# Calibration of intervals and verdicts

How often the intervals and verdicts of `bench/statistics.py` are right in simulated benches of equal arms. Written by
`python lab/calibrate_statistics.py`; the same figures are in statistics.csv. A share of 95 % is known to +-{error:.1f} or better (standard error;
statistics.csv has the numbers of benches).

- Noise of a turn: drawn from the step times of the recorded windows (heavy tails), scaled to the "turn" column, which is 6 % like the recorded rest of arm and
  round. "unequal": a third of the arms each has half, once and twice that.
- Drift: a random walk of 6 % from the first to the last turn, also between the turns of a round; arms react to it by half to one and a half times as
  much, so that they share it only in part.
- "starts": the standard deviation of an arm's throughput from one start of its processes to the next.

Shares in %, and the targets; **bold** misses the target:

- "figure holds", "ratio holds": 95 % intervals of an arm's images/s, and of one ratio, that hold the true value: 93 to 97.
- "called different": benches that call any arm faster or slower than the first, all arms compared with it (Holm): at most 5.
- "10 % found": benches that call an arm slower that is 10 % slower than the first: at least 90 in the default bench (10 arms, 12 rounds, 2 incarnations).

{missed} of {rows} rows miss a target, some of them by the chance of the simulation. The plain ones are two incarnations of an arm that differs from start to
start by a third of a turn's noise or more (2 % beside turns of 6 %, 1 % beside 1.5 %): two starts seldom show it, each arm's mean is wrong by
more than its turns say, and more rounds do not help. More incarnations do. Where starts differ by 1 % beside turns of 6 %, two incarnations call equal arms
different in 2 to 9 % of benches. The default bench finds a slow-down of 10 % in fewer than 90 % as soon as starts differ.

## The default bench

{default}

## Two incarnations

{grid}

## More incarnations

{more}

## A quiet machine

{quiet}

## The former method

The percentile bootstrap of the median ratio held the true ratio of two equal arms in {bootstrap} of its "95 %" intervals.
"""


def row(benches: int, scenario: Scenario) -> dict[str, float | str]:
    """A scenario and its shares, in per cent. The default bench counts most; those of unequal spreads take long."""
    number = 4 * benches if scenario == DEFAULT else benches // (2 if scenario.unequal else 1)
    percent = {name: 100 * share for name, share in asdict(shares(scenario, number)).items()}
    sizes = {"starts_sd": 100 * scenario.starts_sd, "turn_sd": 100 * scenario.turn_sd}
    return {**asdict(scenario), **sizes, "benches": number, **percent}


NAMES = {
    "incarnations": "incarnations", "rounds": "rounds", "arms": "arms", "turn_sd": "turn", "unequal": "spreads",
    "starts_sd": "starts", "figure_holds": "figure holds", "ratio_holds": "ratio holds",
    "called_different": "called different", "slow_down_found": "10 % found",
}  # fmt: skip
MISSES = {
    "figure_holds": lambda share: not 93 <= share <= 97,
    "ratio_holds": lambda share: not 93 <= share <= 97,
    "called_different": lambda share: share > 5,
}
"""When a share misses its target."""


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


def report(table: pd.DataFrame, bootstrap: str) -> str:
    """The text of statistics.md."""
    quiet, more = table.turn_sd < 100 * TURN_SD, table.incarnations > DEFAULT.incarnations
    default = ~quiet & ~more & ~table.unequal & (table.rounds == DEFAULT.rounds) & (table.arms == DEFAULT.arms)
    tables = {"default": table[default], "grid": table[~quiet & ~more], "more": table[more], "quiet": table[quiet]}
    return TEXT.format(
        error=100 * math.sqrt(0.95 * 0.05 / table.benches.min()),
        missed=rows_that_miss(table, MISSES),
        rows=len(table),
        bootstrap=bootstrap,
        **{name: markdown(part, NAMES, MISSES) for name, part in tables.items()},
    )


def main(benches: int) -> None:
    """Write statistics.csv and statistics.md."""
    with ProcessPoolExecutor() as pool:
        table = pd.DataFrame(list(pool.map(partial(row, benches), [*GRID, *MORE_STARTS, *QUIET])))
    bootstrap = ", ".join(f"{bootstrap_holds(rounds, 2000):.0%} ({rounds} rounds)" for rounds in (3, 6, 12))
    folder = ROOT / "calibration"
    folder.mkdir(exist_ok=True)
    table.to_csv(folder / "statistics.csv", index=False, float_format="%.4g", lineterminator="\n")
    (folder / "statistics.md").write_text(report(table, bootstrap), encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
