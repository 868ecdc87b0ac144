"""What it saves to drop arms between the starts of a bench, and how often that is wrong: simulated on recorded noise.

python -m lab.calibrate_adaptive [benches]    # writes bench_results/calibration/adaptive.md
"""

import math
import sys
from collections.abc import Callable, Mapping, Set
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from zlib import crc32

import numpy as np
import pandas as pd

from lab.calibrate_statistics import ROOT, Scenario, incarnations, markdown, rows_that_miss, simulate
from lab.simulated_suites import (
    EFFICIENCY,
    GAIN,
    GPU_START_S,
    XLA_START_S,
    Machine,
    SimulatedSuite,
    cpu_suite,
    gpu_suite,
    ten_arms,
)
from tfdist.bench.adaptive import FEWEST_STARTS, Look, look
from tfdist.bench.design import Block
from tfdist.bench.factors import can_wait, candidates, screen
from tfdist.bench.plan import BY_TABLE
from tfdist.bench.statistics import ERROR, ArmVerdict, Statistics
from tfdist.bench.suites.suite import Suite

STARTS, ROUNDS_EACH = Suite.incarnations, Suite.rounds // Suite.incarnations
TURN_S = Suite.turn_s + BY_TABLE.edge_s
"""Seconds of a turn with its release and saving, as `plan.seconds_left` counts them."""
AS_GOOD = 0.001
"""Arms within this share of the best count as best, too."""


@dataclass(frozen=True)
class Case:
    """A suite, and the noise with which it is measured; see `Scenario`."""

    suite: SimulatedSuite
    starts_sd: float
    turn_sd: float
    bad: float = 0.0
    unequal: bool = False
    machine: Machine | None = None
    """It draws the throughputs of each bench, and combinations are predicted, as by `bench/factors.py`; None: those of
    the suite, and the first start measures every arm.
    """

    @property
    def noise(self) -> Scenario:
        """The noise of all arms, measured to the end."""
        return Scenario(len(self.suite.arms), self.starts_sd, self.turn_sd, self.bad, self.unequal)


@dataclass(frozen=True)
class Rule:
    """When arms are dropped and a bench ends; by default as in `bench/adaptive.py`."""

    fewest: int = FEWEST_STARTS
    """No bench ends before."""
    gives_up: bool = True
    """A bench also ends when the starts that are left would decide little."""
    share: float = 1 / STARTS
    """The share of ERROR of each look but the one at the end, which has the rest."""
    all_pairs: bool = False
    """Each look's error is shared by all pairs of arms that compete; False: by the comparisons with the best."""

    def error(self, starts: int) -> float:
        """The error of the report of a bench that ends after so many starts."""
        return ERROR * (self.share if starts < STARTS else 1 - (STARTS - 1) * self.share)

    def look(self, statistics: Statistics, alive: list[str], starts: int, rivals: int) -> Look:
        """Compare the arms that are left of this number of rivals."""
        comparisons = math.comb(rivals, 2) if self.all_pairs else rivals - 1
        number = 1 + round(comparisons / STARTS / self.share)  # `look` divides by STARTS
        return look(statistics, alive, starts=starts, planned=STARTS, equal=Suite.equal, number=number)


@dataclass(frozen=True)
class Shares:
    """Means over benches: of whether something happened, of a number, or of a difference of logarithms."""

    best_dropped: float
    """Each arm that is truly best is called slower than another one, or was never measured."""
    false: float
    """A statement is false."""
    time: float
    """Seconds, over those of the bench that measures every arm to the end."""
    starts: float
    named: float
    """Number of arms that the report names as the best."""
    bias: float
    """By how much their figures are too high."""
    best_bias: float
    """By how much the highest figure is too high."""
    full_false: float
    """The same of the bench that measures every arm to the end."""
    full_named: float
    full_bias: float
    full_best_bias: float


@dataclass
class Bench:
    """A simulated bench, measured start by start."""

    suite: SimulatedSuite
    rates: Mapping[str, Mapping[Block, float]]
    """The images/s of each arm in all rounds."""
    machine: Machine | None = None
    """As in `Case`."""
    seed: int = 0
    starts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The starts, from 0, in which each arm was measured so far."""
    slower: set[str] = field(default_factory=set)
    """The arms that a look found to be slower than the best."""
    said: set[tuple[str, str, float]] = field(default_factory=set)
    """An arm, another one, and the logarithm of their ratio that the arm is said not to reach."""
    known: tuple[Mapping[str, tuple[int, ...]], Statistics] | None = None
    """The statistics of the last look and of the report, often of the same turns, and the starts that they are of."""

    def measure(self, rule: Rule) -> int:
        """Start arms as `bench/run_session.py` does, and return the number of starts."""
        now: Set[str] = set(self.rates if self.machine is None else screen(self.machine.arms))
        for start in range(1, STARTS + 1):
            self.starts.update({arm: (*self.starts.get(arm, ()), start - 1) for arm in self.rates if arm in now})
            if start == STARTS:
                break
            found = self._look(rule, start)
            self.slower.update(found.slower)
            self.said.update((arm, found.best, 0.0) for arm in found.slower)
            left = [arm for arm in self.suite.ranked if arm in self.starts and arm not in self.slower]
            joining, waiting = self._joining(rule.error(start))
            worth = [arm for arm in left if arm not in waiting]
            now = {*worth, *joining, *self.suite.same, *(other for arm in worth for other in self.suite.baselines[arm])}
            enough = now <= self.starts.keys() and min(len(self.starts[arm]) for arm in left) >= rule.fewest
            if enough and (found.is_decided if rule.gives_up else not found.open):
                as_fast = {*left} - {found.best, *found.open}
                self.said.update((arm, found.best, math.log1p(Suite.equal)) for arm in as_fast)
                break
        return start

    def _joining(self, error: float) -> tuple[Set[str], Set[str]]:
        """The combinations that are measured from now on, and the arms that can wait."""
        if self.machine is None:
            return set(), set()
        arms, logs = self.machine.arms, self.logs(error)
        joining = set(candidates(arms, logs, self.seed, self.suite.ranked))
        return joining, can_wait(arms, logs, joining)

    def logs(self, error: float = ERROR) -> Mapping[str, float]:
        """The natural logarithm of the images/s of each arm that was measured."""
        return {arm: self.statistics(error).log(arm) for arm in self.starts}

    def _look(self, rule: Rule, start: int) -> Look:
        statistics = self.statistics(rule.error(start))
        measured = [arm for arm in self.suite.ranked if arm in self.starts]
        one_device = self.suite.baselines[max(self._at_the_end(start), key=statistics.log)][:1]
        rivals = dict.fromkeys([*measured, *one_device])
        return rule.look(statistics, [arm for arm in rivals if arm not in self.slower], start, len(rivals))

    def _at_the_end(self, starts: int) -> list[str]:
        """The competing arms that were measured in the last of these starts."""
        return [arm for arm in self.suite.ranked if starts - 1 in self.starts.get(arm, ())]

    def statistics(self, error: float) -> Statistics:
        """The statistics of all turns so far."""
        if self.known is None or self.known[0] != self.starts or self.known[1].error != error:
            turns = {
                arm: {block: rate for block, rate in self.rates[arm].items() if block.incarnation in starts}
                for arm, starts in self.starts.items()
            }
            self.known = dict(self.starts), Statistics(turns, error=error)
        return self.known[1]

    def report(self, starts: int, error: float) -> tuple[float, ...]:
        """`false`, `named`, `bias` and `best_bias` of `Shares`, with all that was said before."""
        statistics = self.statistics(error)
        arms = self._at_the_end(starts)
        best = max(arms, key=statistics.log)
        pairs = [(arm, best) for arm in arms if arm != best]
        slower = {
            arm
            for (arm, _), of in zip(pairs, statistics.compare(pairs), strict=True)
            if of.verdict is ArmVerdict.SLOWER
        }
        true = self.suite.true
        said = {*self.said, *((arm, best, 0.0) for arm in (slower | self.slower) - {best})}
        false = any(true[arm] - true[other] >= most for arm, other, most in said)
        biases = {arm: statistics.log(arm) - true[arm] for arm in arms if arm not in slower}
        return float(false), len(biases), float(np.mean([*biases.values()])), biases[best]

    @property
    def seconds(self) -> float:
        """How long its starts and turns took."""
        return math.fsum(
            len(self.starts.get(arm.name, ())) * (arm.start_s + ROUNDS_EACH * TURN_S) for arm in self.suite.arms
        )

    def full(self) -> "Bench":
        """The one that measures every arm to the end, with the same noise."""
        return Bench(self.suite, self.rates, starts=dict.fromkeys(self.rates, tuple(range(STARTS))))


BLOCKS = [Block(0, number, start) for number, start in enumerate(incarnations(Scenario(1, 0.0)))]


def bench_of(case: Case, seed: int) -> Bench:
    """A bench of which nothing is measured yet."""
    draw = np.random.default_rng(seed)
    noise = simulate(case.noise, draw)
    suite = case.suite if case.machine is None else case.suite.with_logs(case.machine.logs(draw))
    rates = zip(suite.arms, np.exp(noise + np.array([[arm.log] for arm in suite.arms])).tolist(), strict=True)
    of_arms = {arm.name: dict(zip(BLOCKS, of_arm, strict=True)) for arm, of_arm in rates}
    return Bench(suite, of_arms, case.machine, seed)


def one_bench(bench: Bench, rule: Rule) -> tuple[float, ...]:
    """Measure it, and return its values of `Shares`."""
    starts = bench.measure(rule)
    full = bench.full()
    true = {arm: bench.suite.true[arm] for arm in bench.suite.ranked}
    best = {arm for arm, log in true.items() if max(true.values()) - log <= AS_GOOD}
    false, *figures = bench.report(starts, rule.error(starts))
    dropped = best <= bench.slower | (true.keys() - bench.starts.keys())
    return dropped, false, bench.seconds / full.seconds, starts, *figures, *full.report(STARTS, ERROR)


def shares(case: Case, benches: int, rule: Rule | None = None, seed: int = 0) -> Shares:
    """The means over a number of benches."""
    found = [one_bench(bench_of(case, seed + number), rule or Rule()) for number in range(benches)]
    return Shares(*np.mean(found, axis=0).tolist())


QUIET, NOISY = (0.01, 0.03), (0.023, 0.05)
"""Standard deviations of starts and turns on CPUs."""
GPU_QUIET, GPU_NOISY = (0.01, 0.015), (0.023, 0.03)
EIGHT = [
    Case(gpu_suite(8), *GPU_QUIET),
    Case(gpu_suite(8), *GPU_NOISY),
    Case(gpu_suite(8), *GPU_QUIET, bad=0.02),
    Case(gpu_suite(8), *GPU_QUIET, unequal=True),
]
FEWER = [Case(gpu_suite(gpus), *noise) for gpus in (4, 2, 1) for noise in (GPU_QUIET, GPU_NOISY)]
CPU = [
    Case(cpu_suite(), *QUIET),
    Case(cpu_suite(), *NOISY),
    Case(cpu_suite(), *NOISY, bad=0.02),
    Case(cpu_suite(), *NOISY, unequal=True),
]
TEN = [
    *(Case(ten_arms(better), *noise) for better in (0.0, 0.03, 0.05, 0.1) for noise in (QUIET, NOISY)),
    Case(ten_arms(), *NOISY, bad=0.02),
    Case(ten_arms(), *NOISY, unequal=True),
]
RULES = {
    "as it is": Rule(),
    "3 starts or more": Rule(fewest=3),
    "never gives up": Rule(gives_up=False),
    "0.2 % for each early look": Rule(share=0.04),
    "all pairs": Rule(all_pairs=True),
}
RULE_CASES = [CPU[0], TEN[1]]
RULE_BENCHES = 200

TEXT = """# Calibration of benches that drop arms

What it saves that `tfdist bench` drops arms between its starts and ends when all is decided (`bench/adaptive.py`), and how often that is wrong, in simulated
benches of up to four starts of three rounds. Written by `python -m lab.calibrate_adaptive`. Each row is of {benches:,} benches.

- "starts", "turn", "bad", "spreads": the noise, as in [statistics.md](statistics.md), with the same drift.
- Suite cpu has the throughputs of the recorded bench, and the times that tfdist plans for its starts and turns.
- Suite gpu has assumed ones. Efficiencies on eight GPUs: {efficiencies}; each doubling loses the same share. Throughput over that in float32: {gains}.
  A start takes {gpu:.0f} s, with XLA {xla:.0f} s. The first start measures every arm; [factors.md](factors.md) is for benches that predict combinations, too.
- "one of ten": ten arms compete, and the others are equal.
- Measured until the bench ends: the arms that are left, their baselines, and two equal arms (A/A).

In %, and the targets; **bold** misses the target, a share by more than twice its standard error:

- "best dropped": benches in which no arm is left of those that are truly best, to within {as_good:.1f} %: at most 1.
- "false": benches in which anything said is false: an arm is called slower than the best although it is as fast or faster, or not faster than the best by more than {equal:.0f} % although it is: at most 5.
- "time": that of all arms measured to the end is 100. At most 30 for suite gpu on eight, at most 70 for suite cpu.
- "ends after": number of starts, on average.
- "named": number of arms that the report names as the best.
- "bias": by how much the figures of these arms are too high, on average: at most 0.5 in either direction. "of the best": the same of the arm with the highest figure, which is the largest of equal ones: no target.
- "full": the same of benches that measure every arm to the end. Where "false" misses the target there, too, it is the intervals that are too narrow, not the dropping: the arm that all are
  compared with is the best by the same figures.

{missed} of {rows} rows miss a target.

## Suite gpu on eight GPUs

{eight}

## Suite gpu on fewer

{fewer}

## Suite cpu

{cpu}

## Ten arms

{ten}

## Other rules

What other rules cost, each with {rule_benches} benches: the fewest starts after which a bench ends; not to end when the starts that are left would decide at most half of what is open ("never gives up"); an error of 0.2 %
for each look but the last (Haybittle and Peto) instead of equal parts; and to divide it among all pairs of arms instead of the comparisons with the best.

{rules}
"""

NAMES = {
    "suite": "suite", "starts_sd": "starts", "turn_sd": "turn", "bad": "bad", "unequal": "spreads",
    "best_dropped": "best dropped", "false": "false", "time": "time", "starts": "ends after", "named": "named",
    "bias": "bias", "best_bias": "of the best", "full_false": "full: false", "full_named": "named",
    "full_bias": "bias", "full_best_bias": "of the best",
}  # fmt: skip
RULE_NAMES = {"suite": "suite", "rule": "rule", **{name: NAMES[name] for name in list(NAMES)[5:12]}}


def row(benches: int, case: Case, rule: Rule | None = None, name: str = "") -> dict[str, float | str]:
    """A case and its shares, in per cent."""
    found = asdict(shares(case, benches, rule, crc32(repr(case).encode())))
    values = {**found, **{each: getattr(case, each) for each in ("starts_sd", "turn_sd", "bad")}}
    numbers = {each: values[each] for each in ("starts", "named", "full_named")}
    return {"suite": case.suite.name, "rule": name, "unequal": case.unequal, **in_percent(values), **numbers}


def in_percent(shares: Mapping[str, float]) -> dict[str, float]:
    """With one digit, and without -0.0."""
    return {name: round(100 * float(share), 1) + 0.0 for name, share in shares.items()}


def misses_of(benches: int, most_time: float = 100.0) -> dict[str, Callable[[float], bool]]:
    """When a value in per cent, of this number of benches, misses its target."""
    best, false = (most + 200 * math.sqrt(most / 100 * (1 - most / 100) / benches) for most in (1.0, 5.0))
    return {
        "best_dropped": lambda share: share > best,
        "false": lambda share: share > false,
        "time": lambda share: share > most_time,
        "bias": lambda share: abs(share) > 0.5,
    }


PARTS = {"eight": (EIGHT, 30.0), "fewer": (FEWER, 100.0), "cpu": (CPU, 70.0), "ten": (TEN, 100.0)}
"""The cases of each table, and the target of their time."""


def main(benches: int) -> None:
    """Simulate all cases, and write adaptive.md."""
    cases = [case for part, _ in PARTS.values() for case in part]
    rules = [(case, rule, name) for case in RULE_CASES for name, rule in RULES.items()]
    with ProcessPoolExecutor() as pool:
        rows = pool.map(partial(row, benches), cases)
        others = pool.map(partial(row, RULE_BENCHES), *zip(*rules, strict=True))
        found = {name: pd.DataFrame([next(rows) for _ in part]) for name, (part, _) in PARTS.items()}
        write(found, pd.DataFrame(list(others)), benches)


def write(tables: Mapping[str, pd.DataFrame], rules: pd.DataFrame, benches: int) -> None:
    """Write the rows of `PARTS` and of other rules."""
    misses = {name: misses_of(benches, most_time) for name, (_, most_time) in PARTS.items()}
    text = TEXT.format(
        benches=benches,
        efficiencies=", ".join(f"{kind} {value:g}" for kind, value in EFFICIENCY.items()),
        gains=", ".join(f"{kind} {value:g}" for kind, value in GAIN.items()),
        gpu=GPU_START_S,
        xla=XLA_START_S,
        as_good=100 * AS_GOOD,
        equal=100 * Suite.equal,
        missed=sum(rows_that_miss(table, misses[name]) for name, table in tables.items()),
        rows=sum(map(len, tables.values())),
        rule_benches=RULE_BENCHES,
        rules=markdown(rules, RULE_NAMES, misses_of(RULE_BENCHES)),
        **{name: markdown(table, NAMES, misses[name]) for name, table in tables.items()},
    )
    (ROOT / "calibration" / "adaptive.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
