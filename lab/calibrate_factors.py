"""How often bench/factors.py leaves the fastest combination of the suite gpu unmeasured: simulated, no GPU is used.

python -m lab.calibrate_factors [benches]    # writes bench_results/calibration/factors.md; about a minute
"""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # small matrices

import numpy as np

from lab.calibrate_statistics import BAD_START
from tfdist.bench.factors import MARGIN, candidates, holds, predict, screen
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.suite import load_suite

EFFICIENCY = {
    "one-device": 1.0, "independent": 1.0, "mirrored/auto": 0.9, "multiworker/nccl": 0.88, "mirrored/nccl": 0.9,
    "mirrored/hierarchical-copy": 0.8, "mirrored/reduction-to-one": 0.55, "multiworker/ring": 0.8,
    "central-storage": 0.35, "parameter-server": 0.3,
}  # fmt: skip
"""Assumed: throughput on eight GPUs in float32 over eight times that of one."""
GAIN = {"mixed_bfloat16": 1.6, "mixed_float16": 1.7, "xla": 1.2}
"""Assumed: throughput of one GPU over that in float32."""
EFFICIENCY_SD, GAIN_SD = 0.1, 0.1
"""Standard deviations of their logarithms from bench to bench."""
STARTS, ROUNDS_EACH = 4, 3
TARGET = 1.0
FILE = Path(__file__).parents[1] / "bench_results" / "calibration" / "factors.md"
WITHOUT_EXCHANGE = ("one-device", "independent")
"""Never called the fastest: a baseline and a ceiling."""


@dataclass(frozen=True)
class Scenario:
    """Benches of the suite gpu."""

    name: str
    devices: int = 8
    least_shrink: float = 0.0
    """The logarithm of a gain is smaller by this share at least when eight devices exchange; negative: larger."""
    most_shrink: float = 0.3
    """Same, at most. Each combination draws its share; on two and four devices it is a third and two thirds of it."""
    xla: float = 0.0
    """XLA gains up to this share more when eight devices exchange: their one process launches fewer kernels."""
    starts_sd: float = 0.01
    turn_sd: float = 0.015
    bad: float = 0.0
    """Share of bad starts."""


@dataclass(frozen=True)
class Outcome:
    """One bench."""

    best_measured: bool
    """Whether the arm that is truly the fastest was measured."""
    loss: float
    """By how much the fastest measured arm is truly slower than the fastest, as a share."""
    measured: int
    held: bool
    """Whether the model held to the end."""
    errors: tuple[float, ...]
    """Log of predicted over true throughput of each arm that was only predicted."""
    promised: float
    """Their standard error, as `predict` states it."""


SCENARIOS = (
    Scenario("as assumed"),
    Scenario("four GPUs", devices=4),
    Scenario("noisy: starts 2.3 %, turns 3 %", starts_sd=0.023, turn_sd=0.03),
    Scenario("2 % bad starts", bad=0.02),
    Scenario("no interaction", most_shrink=0.0),
    Scenario("gains shrink by 30 to 60 %", least_shrink=0.3, most_shrink=0.6),
    Scenario("gains shrink or grow by up to 30 %", least_shrink=-0.3),
    Scenario("XLA gains up to 60 % more on eight", xla=0.6),
)


@cache
def arms_of(devices: int) -> tuple[Arm, ...]:
    """Those of the suite gpu that so many GPUs can run."""
    return tuple(arm for arm in load_suite("gpu").arms if size_of(arm) <= devices)


def size_of(arm: Arm) -> int:
    """Number of devices."""
    return int(arm.choices.get("devices", 1) * arm.choices.get("workers", 1))


def rivals_of(arms: Sequence[Arm]) -> list[str]:
    """Names of the arms that exchange gradients."""
    return [arm.name for arm in arms if arm.choices["strategy"] not in WITHOUT_EXCHANGE]


def true_logs(scenario: Scenario, draw: np.random.Generator) -> dict[str, float]:
    """Logarithm of each arm's images/s over those of one device in float32."""
    efficiency = {name: math.log(value) + EFFICIENCY_SD * draw.standard_normal() for name, value in EFFICIENCY.items()}
    gain = {name: math.log(value) + GAIN_SD * draw.standard_normal() for name, value in GAIN.items()}
    logs = {}
    for arm in arms_of(scenario.devices):
        doublings = math.log2(size_of(arm)) / 3
        exchanges = arm.choices["strategy"] not in WITHOUT_EXCHANGE
        kind = next(name for name in EFFICIENCY if arm.name.startswith(name))
        loss = min(efficiency[kind], 0.0) * doublings if exchanges else 0.0
        precision = arm.levels.get("precision", "float32")
        shrink = draw.uniform(scenario.least_shrink, scenario.most_shrink) * doublings if exchanges else 0.0
        faster = gain.get(precision, 0.0) * (1 - shrink)
        if precision == "xla" and exchanges:
            faster += math.log1p(draw.uniform(0, scenario.xla)) * doublings
        logs[arm.name] = math.log(size_of(arm)) + loss + faster
    return logs


def measured_logs(true: Mapping[str, float], scenario: Scenario, draw: np.random.Generator) -> dict[str, float]:
    """The same as one start measures them."""
    size = len(true)
    noise = scenario.starts_sd * draw.standard_normal(size)
    noise += scenario.turn_sd / math.sqrt(ROUNDS_EACH) * draw.standard_normal(size)
    noise += np.log1p(-draw.uniform(*BAD_START, size)) * (draw.random(size) < scenario.bad)
    return dict(zip(true, np.array([*true.values()]) + noise, strict=True))


def one_bench(scenario: Scenario, seed: int) -> Outcome:
    """Screen, then after each start what is worth to be measured, too. No arm is dropped."""
    draw = np.random.default_rng(seed)
    arms = arms_of(scenario.devices)
    true = true_logs(scenario, draw)
    rivals = rivals_of(arms)
    values: dict[str, list[float]] = {}
    names: tuple[str, ...] = screen(arms)
    logs: dict[str, float] = {}
    for _ in range(STARTS):
        if logs:
            names += candidates(arms, logs, seed, rivals)
        found = measured_logs(true, scenario, draw)
        for name in names:
            values.setdefault(name, []).append(found[name])
        logs = {name: sum(each) / len(each) for name, each in values.items()}
    best = max(rivals, key=lambda name: true[name])
    fastest = max(true[name] for name in rivals if name in logs)
    predicted = predict(arms, logs)
    errors = tuple(each.log - true[name] for name, each in predicted.items())
    promised = next((each.error for each in predicted.values()), 0.0)
    return Outcome(best in logs, 1 - math.exp(fastest - true[best]), len(logs), holds(arms, logs), errors, promised)


def row(benches: int, scenario: Scenario) -> str:
    """The outcomes of a scenario, as a row of the table; a share of missed benches above TARGET is bold."""
    done = [one_bench(scenario, seed) for seed in range(benches)]
    errors = np.array([error for each in done for error in each.errors] or [0.0])
    within = [abs(error) <= 2 * each.promised for each in done for error in each.errors] or [True]
    missed = 100 * float(np.mean([not each.best_measured for each in done]))
    cells = (
        scenario.name,
        f"**{missed:.1f}**" if missed > TARGET else f"{missed:.1f}",
        f"{100 * max(each.loss for each in done):.1f}",
        f"{np.mean([each.measured for each in done]):.1f} of {len(arms_of(scenario.devices))}",
        f"{100 * np.mean([not each.held for each in done]):.1f}",
        f"{100 * np.sqrt(np.mean(errors**2)):.1f}",
        f"{100 * np.quantile(np.abs(errors), 0.95):.1f}",
        f"{100 * np.mean(within):.0f}",
    )
    return f"| {' | '.join(cells)} |"


HEAD = (
    "benches", "best never measured", "largest loss", "arms measured", "model refuted", "off: rms", "off: 95 %", "within 2 errors",
)  # fmt: skip
TEXT = """# Combinations that are predicted

How often `bench/factors.py` leaves the fastest arm of the suite gpu unmeasured, in simulated benches: no GPU was used, and the efficiencies and gains are assumed
(top of `lab/calibrate_factors.py`; from bench to bench they differ by 10 %). Written by `python -m lab.calibrate_factors`. Each row is of {benches:,} benches of {starts} starts
of {rounds} rounds, with noise of 1 % from start to start and 1.5 % of a turn if the row names no other. No arm is dropped. All in %, but the number of arms:

- "best never measured": benches in which the truly fastest arm, of those that exchange gradients, was never measured: at most {target:g}; **bold** misses that.
- "largest loss": how much slower than it the fastest measured arm truly was, in the worst bench.
- "model refuted": benches in which a measured combination was more than {margin:.0%} faster than predicted, so that all were measured that may be the fastest.
- "off": predicted over true throughput of the arms that were never measured, root mean square and 95th percentile; "within 2 errors": the share within two stated errors.

{table}
"""


def main(benches: int) -> None:
    """Simulate all scenarios, and write factors.md."""
    with ProcessPoolExecutor() as pool:
        rows = list(pool.map(partial(row, benches), SCENARIOS))
    head = [f"| {' | '.join(HEAD)} |", f"| --- |{' --: |' * (len(HEAD) - 1)}"]
    table = "\n".join([*head, *rows])
    print(table)
    text = TEXT.format(
        benches=benches, starts=STARTS, rounds=ROUNDS_EACH, target=TARGET, margin=MARGIN, table=table
    )  # fmt: skip
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
