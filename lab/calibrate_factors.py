"""What it saves to predict combinations of the suite gpu and to drop slower arms, and how often that is wrong.

Simulated, no GPU is used.

python -m lab.calibrate_factors [benches]    # writes bench_results/calibration/factors.md
"""

import math
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, astuple, dataclass
from functools import partial

import numpy as np
import pandas as pd

from lab.calibrate_adaptive import (
    GPU_NOISY,
    GPU_QUIET,
    NAMES,
    Case,
    Rule,
    Shares,
    bench_of,
    in_percent,
    misses_of,
    one_bench,
)
from lab.calibrate_statistics import ROOT, markdown, rows_that_miss
from lab.simulated_suites import Machine, gpu_suite
from tfdist.bench.factors import MARGIN, holds, predict

FOUR = "four GPUs"
"""The case without a target of its time, the last one."""


@dataclass(frozen=True)
class Predicted:
    """What the predictions of one bench were worth."""

    unmeasured: bool
    """Whether the arm that is truly the fastest was never measured."""
    loss: float
    """By how much the fastest measured arm is truly slower than the fastest, as a share."""
    measured: int
    """Number of arms."""
    refuted: bool
    """Whether the model did not hold to the end."""
    errors: tuple[float, ...]
    """Log of predicted over true throughput of each arm that was only predicted."""
    promised: float
    """Their standard error, as `predict` states it."""


def cases() -> Mapping[str, Case]:
    """By name."""
    assumed = Machine()
    quiet = {
        "as assumed": assumed,
        "the same on each machine: ties": Machine(spread=0.0, most_shrink=0.0),
        "no interaction": Machine(most_shrink=0.0),
        "gains shrink by 30 to 60 %": Machine(least_shrink=0.3, most_shrink=0.6),
        "gains shrink or grow by up to 30 %": Machine(least_shrink=-0.3),
        "XLA gains up to 60 % more on eight": Machine(xla=0.6),
    }
    of_machines = {name: Case(gpu_suite(8), *GPU_QUIET, machine=machine) for name, machine in quiet.items()}
    return {
        **of_machines,
        "noisy: starts 2.3 %, turns 3 %": Case(gpu_suite(8), *GPU_NOISY, machine=assumed),
        "2 % bad starts": Case(gpu_suite(8), *GPU_QUIET, bad=0.02, machine=assumed),
        FOUR: Case(gpu_suite(4), *GPU_QUIET, machine=Machine(devices=4)),
    }


def one(case: Case, seed: int) -> tuple[Shares, Predicted]:
    """A single bench, measured as tfdist does."""
    assert case.machine is not None
    bench = bench_of(case, seed)
    shares = Shares(*one_bench(bench, Rule()))
    arms, logs, true = case.machine.arms, bench.logs(), bench.suite.true
    best = max(bench.suite.ranked, key=true.__getitem__)
    fastest = max(true[arm] for arm in bench.suite.ranked if arm in logs)
    predicted = predict(arms, logs)
    errors = tuple(each.log - true[arm] for arm, each in predicted.items())
    promised = next((each.error for each in predicted.values()), 0.0)
    loss = 1 - math.exp(fastest - true[best])
    return shares, Predicted(best not in logs, loss, len(logs), not holds(arms, logs), errors, promised)


def row(benches: int, name: str, case: Case) -> dict[str, float | str]:
    """A case with its shares in per cent, and numbers."""
    done = [one(case, seed) for seed in range(benches)]
    shares = asdict(Shares(*np.mean([astuple(of) for of, _ in done], axis=0).tolist()))
    found = [of for _, of in done]
    errors = np.array([error for of in found for error in of.errors] or [0.0])
    within = [abs(error) <= 2 * of.promised for of in found for error in of.errors] or [True]
    values = {
        **shares,
        "unmeasured": np.mean([of.unmeasured for of in found]),
        "loss": max(of.loss for of in found),
        "refuted": np.mean([of.refuted for of in found]),
        "rms": np.sqrt(np.mean(errors**2)),
        "most": np.quantile(np.abs(errors), 0.95),
        "within": np.mean(within),
    }
    measured = f"{np.mean([of.measured for of in found]):.1f} of {len(case.suite.arms)}"
    return {
        **in_percent(values),
        "case": name,
        "measured": measured,
        "starts": shares["starts"],
        "named": shares["named"],
    }


COLUMNS = {
    "case": "benches", "unmeasured": "best never measured", "loss": "largest loss",
    **{name: NAMES[name] for name in ("best_dropped", "false", "time", "starts", "named", "bias")},
    "measured": "arms measured", "refuted": "model refuted", "rms": "off: rms", "most": "95 %", "within": "within 2 errors",
}  # fmt: skip
MOST_TIME = 20.0
TEXT = """# Combinations that are predicted, and arms that are dropped

How often `tfdist bench --suite gpu` leaves the fastest arm unmeasured (`bench/factors.py`) or drops it (`bench/adaptive.py`), in simulated benches: no GPU was used, and the efficiencies
and gains are assumed (top of `lab/simulated_suites.py`; from bench to bench they differ by 10 %). Written by `python -m lab.calibrate_factors`. Each row is of {benches:,} benches
of up to four starts of three rounds on eight GPUs, with noise of 1 % from start to start and 1.5 % of a turn, if the row names no other. In %, but numbers of starts and arms;
**bold** misses the target:

- "best never measured": benches in which the truly fastest arm, of those that exchange gradients, was never measured: at most 1.
- "largest loss": how much slower than it the fastest measured arm truly was, in the worst bench.
- "best dropped" to "bias": as in [adaptive.md](adaptive.md), with the same targets; an arm that was never measured counts as dropped. "time": at most {most_time:g} on eight GPUs.
- "model refuted": benches in which a measured combination was more than {margin:.0%} faster than predicted, so that all were measured that may be the fastest.
- "off": predicted over true throughput of the arms that were never measured, root mean square and 95th percentile; "within 2 errors": the share within two stated errors.

{missed} of {rows} rows miss a target.

{table}
"""


def main(benches: int) -> None:
    """Simulate all cases, and write factors.md."""
    with ProcessPoolExecutor() as pool:
        table = pd.DataFrame(list(pool.map(partial(row, benches), *zip(*cases().items(), strict=True))))
    eight, four = (misses_of(benches, most_time) for most_time in (MOST_TIME, 100.0))
    for misses in (eight, four):
        misses["unmeasured"] = misses["best_dropped"]
    of_four = table["case"] == FOUR
    text = TEXT.format(
        benches=benches,
        most_time=MOST_TIME,
        margin=MARGIN,
        missed=rows_that_miss(table[~of_four], eight) + rows_that_miss(table[of_four], four),
        rows=len(table),
        table="\n".join(
            [markdown(table[~of_four], COLUMNS, eight), markdown(table[of_four], COLUMNS, four).split("\n")[-1]]
        ),
    )
    (ROOT / "calibration" / "factors.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
