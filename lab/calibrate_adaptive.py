"""What it saves to drop arms between the starts of a bench, and how often that is wrong: simulated on recorded noise.

python -m lab.calibrate_adaptive [benches]    # writes bench_results/calibration/adaptive.md
"""

import math
import sys
from collections.abc import Callable, Mapping, Set
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import islice
from zlib import crc32

import numpy as np
import pandas as pd

from lab.calibrate_factors import GAIN
from lab.calibrate_statistics import RECORDS, ROOT, Scenario, incarnations, markdown, rows_that_miss, simulate
from tfdist.bench.adaptive import FEWEST_STARTS, Look, look
from tfdist.bench.design import Block
from tfdist.bench.plan import BY_TABLE, start_s
from tfdist.bench.reading import read_folder
from tfdist.bench.report.arm_records import arms_of
from tfdist.bench.report.summary import statistics_of
from tfdist.bench.statistics import ERROR, ArmVerdict, Statistics
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.suite import Suite, load_suite
from tfdist.models.spec import TrainingSpec
from tfdist.models.throughput import exchange
from tfdist.strategies.catalog import Exchange

STARTS, ROUNDS_EACH = Suite.incarnations, Suite.rounds // Suite.incarnations
TURN_S = Suite.turn_s + BY_TABLE.edge_s
"""Seconds of a turn with its release and saving, as `plan.seconds_left` counts them."""
GPU_START_S, XLA_START_S = 15.0, 70.0
"""Seconds of a start on GPUs, warm-up included."""
EFFICIENCIES = {
    "one-device": 1.0, "independent": 1.0, "mirrored/auto": 0.9, "mirrored/nccl": 0.9, "multiworker/nccl": 0.9,
    "mirrored/hierarchical-copy": 0.8, "mirrored/reduction-to-one": 0.6, "multiworker/ring": 0.5,
    "central-storage": 0.35, "parameter-server": 0.3,
}  # fmt: skip
"""Assumed on eight GPUs; on four two thirds of the loss, on two a third."""
GAINS = {"float32": 1.0, **GAIN}
"""Assumed throughputs on one GPU over that in float32."""
AS_GOOD = 0.001
"""Arms within this share of the best count as best, too."""


@dataclass(frozen=True)
class SimulatedArm:
    """An arm whose throughput is known."""

    name: str
    log: float
    """The natural logarithm of its true throughput."""
    start_s: float
    """Seconds of a start, warm-up included."""
    devices: int = 2
    exchanges: bool = True
    """Whether its devices exchange gradients."""
    work: str = "float32"
    """Equal for arms that are compared with the same baselines."""


@dataclass(frozen=True)
class SimulatedSuite:
    """The arms of a bench."""

    name: str
    arms: tuple[SimulatedArm, ...]
    same: tuple[str, ...]
    """Two equal arms (A/A), which are measured to the end."""

    @cached_property
    def true(self) -> Mapping[str, float]:
        """`SimulatedArm.log` by name."""
        return {arm.name: arm.log for arm in self.arms}

    @cached_property
    def ranked(self) -> list[str]:
        """The arms that compete, as `summary.rank` chooses them."""
        exchanging = [arm for arm in self.arms if arm.exchanges]
        return [arm.name for arm in [arm for arm in exchanging if arm.devices > 1] or exchanging]

    @cached_property
    def baselines(self) -> Mapping[str, list[str]]:
        """Of each arm the one on one device, if there is one, and then the one without exchange on as many devices."""
        first: dict[tuple[int, str], str] = {}
        for arm in self.arms:
            if arm.devices == 1 or not arm.exchanges:
                first.setdefault((arm.devices, arm.work), arm.name)
        keys = {arm.name: dict.fromkeys([(1, arm.work), (arm.devices, arm.work)]) for arm in self.arms}
        return {arm: [first[key] for key in of_arm if key in first] for arm, of_arm in keys.items()}


@dataclass(frozen=True)
class Case:
    """A suite, and the noise with which it is measured; see `Scenario`."""

    suite: SimulatedSuite
    starts_sd: float
    turn_sd: float
    bad: float = 0.0
    unequal: bool = False

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
    """All arms that are truly best are called slower than another one."""
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
    starts: dict[str, int] = field(default_factory=dict)
    """The number of starts of each arm so far."""
    slower: set[str] = field(default_factory=set)
    """The arms that a look found to be slower than the best."""
    said: set[tuple[str, str, float]] = field(default_factory=set)
    """An arm, another one, and the logarithm of their ratio that the arm is said not to reach."""
    known: tuple[Mapping[str, int], Statistics] | None = None
    """The statistics of the last look and of the report, often of the same turns, and the starts that they are of."""

    def measure(self, rule: Rule) -> int:
        """Start arms as `bench/run.py` does, and return the number of starts."""
        alive: Set[str] = self.rates.keys()
        for start in range(1, STARTS + 1):
            self.starts.update(dict.fromkeys(alive, start))
            if start == STARTS:
                break
            found = self._look(rule, start)
            self.slower.update(found.slower)
            self.said.update((arm, found.best, 0.0) for arm in found.slower)
            if start >= rule.fewest and (found.is_decided if rule.gives_up else not found.open):
                as_fast = {*self.suite.ranked} - self.slower - {found.best, *found.open}
                self.said.update((arm, found.best, math.log1p(Suite.equal)) for arm in as_fast)
                break
            left = [arm for arm in self.suite.ranked if arm not in self.slower]
            alive &= {*left, *self.suite.same, *(other for arm in left for other in self.suite.baselines[arm])}
        return start

    def _look(self, rule: Rule, start: int) -> Look:
        statistics = self.statistics(rule.error(start))
        one_device = self.suite.baselines[max(self._measured(start), key=statistics.log)][:1]
        rivals = dict.fromkeys([*self.suite.ranked, *one_device])
        return rule.look(statistics, [arm for arm in rivals if arm not in self.slower], start, len(rivals))

    def _measured(self, starts: int) -> list[str]:
        """The competing arms that were measured in all of these starts."""
        return [arm for arm in self.suite.ranked if self.starts[arm] == starts]

    def statistics(self, error: float) -> Statistics:
        """The statistics of all turns so far."""
        if self.known is None or self.known[0] != self.starts or self.known[1].error != error:
            turns = {arm: dict(islice(self.rates[arm].items(), ROUNDS_EACH * n)) for arm, n in self.starts.items()}
            self.known = dict(self.starts), Statistics(turns, error=error)
        return self.known[1]

    def report(self, starts: int, error: float) -> tuple[float, ...]:
        """`false`, `named`, `bias` and `best_bias` of `Shares`, with all that was said before."""
        statistics = self.statistics(error)
        arms = self._measured(starts)
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
        return math.fsum(self.starts[arm.name] * (arm.start_s + ROUNDS_EACH * TURN_S) for arm in self.suite.arms)

    def full(self) -> "Bench":
        """The one that measures every arm to the end, with the same noise."""
        return Bench(self.suite, self.rates, dict.fromkeys(self.rates, STARTS))


BLOCKS = [Block(0, number, start) for number, start in enumerate(incarnations(Scenario(1, 0.0)))]


def bench_of(case: Case, seed: int) -> Bench:
    """A bench of which nothing is measured yet."""
    logs = simulate(case.noise, np.random.default_rng(seed)) + np.array([[arm.log] for arm in case.suite.arms])
    rates = zip(case.suite.arms, np.exp(logs).tolist(), strict=True)
    return Bench(case.suite, {arm.name: dict(zip(BLOCKS, of_arm, strict=True)) for arm, of_arm in rates})


def one_bench(case: Case, rule: Rule, seed: int) -> tuple[float, ...]:
    """The values of `Shares` of a single bench."""
    bench = bench_of(case, seed)
    starts = bench.measure(rule)
    full = bench.full()
    competing = [case.suite.true[arm] for arm in case.suite.ranked]
    best = {arm for arm in case.suite.ranked if max(competing) - case.suite.true[arm] <= AS_GOOD}
    false, *figures = bench.report(starts, rule.error(starts))
    time = bench.seconds / full.seconds
    return best <= bench.slower, false, time, starts, *figures, *full.report(STARTS, ERROR)


def shares(case: Case, benches: int, rule: Rule | None = None, seed: int = 0) -> Shares:
    """The means over a number of benches."""
    found = [one_bench(case, rule or Rule(), seed + number) for number in range(benches)]
    return Shares(*np.mean(found, axis=0).tolist())


def simulated(arm: Arm, log: float, start_s: float) -> SimulatedArm:
    """An arm of a suite."""
    spec = TrainingSpec(**arm.choices)
    exchanges = exchange(arm.choices) is not Exchange.NONE
    return SimulatedArm(arm.name, log, start_s, devices_of(arm), exchanges, "xla" if spec.xla else spec.precision)


def devices_of(arm: Arm) -> int:
    """Its number of devices."""
    spec = TrainingSpec(**arm.choices)
    return spec.devices * spec.workers


@cache
def cpu_suite() -> SimulatedSuite:
    """Suite cpu with the throughputs of the recorded bench."""
    folder = read_folder(RECORDS, "")
    recorded = statistics_of(arms_of([folder]), [folder])
    suite = load_suite("cpu")
    seconds = {arm.name: start_s(TrainingSpec(**arm.choices)) + suite.warmup_s for arm in suite.arms}
    arms = (simulated(arm, recorded.log(arm.name), seconds[arm.name]) for arm in suite.arms)
    return SimulatedSuite("cpu", tuple(arms), ("multiworker/auto", "multiworker/ring"))


@cache
def gpu_suite(gpus: int) -> SimulatedSuite:
    """Suite gpu on a machine with this number of GPUs, with assumed throughputs."""
    arms = []
    for arm in load_suite("gpu").arms:
        devices = devices_of(arm)
        kind = next(kind for kind in EFFICIENCIES if arm.name.startswith(kind))
        efficiency = 1 - (1 - EFFICIENCIES[kind]) * math.log2(devices) / 3
        one = simulated(arm, 0.0, XLA_START_S if arm.choices.get("xla") else GPU_START_S)
        if devices <= gpus:
            arms.append(replace(one, log=math.log(GAINS[one.work] * devices * efficiency)))
    return SimulatedSuite(f"gpu on {gpus}", tuple(arms), ("one-device/float32", "one-device/again"))


def ten_arms(better: float = 0.0) -> SimulatedSuite:
    """Ten arms that compete, the last one better than the others by this share."""
    arms = [SimulatedArm(str(number), 0.0, 9.0) for number in range(10)]
    arms[-1] = replace(arms[-1], log=math.log1p(better))
    name = f"one of ten {100 * better:.0f} % better" if better else "ten equal"
    return SimulatedSuite(name, tuple(arms), ("0", "1"))


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
- Suite gpu has assumed ones. Efficiencies on eight GPUs: {efficiencies}; on four two thirds of the loss, on two a third. Throughput over that in float32: {gains}.
  A start takes {gpu:.0f} s, with XLA {xla:.0f} s. The first start measures every arm: no combination is predicted (`factors.md`).
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
    percent = {each: round(100 * value, 1) + 0.0 for each, value in values.items()}  # without -0.0
    return {"suite": case.suite.name, "rule": name, "unequal": case.unequal, **percent, **numbers}


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
        efficiencies=", ".join(f"{kind} {value:g}" for kind, value in EFFICIENCIES.items()),
        gains=", ".join(f"{kind} {value:g}" for kind, value in GAINS.items()),
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
