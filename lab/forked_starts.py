"""Whether tasks that are forked from a template train as those that are executed: the same arm, started both ways.

python -m lab.forked_starts [--starts N] [--rounds N] [--out DIR]    # about 12 minutes on a quiet machine

Each start has a template of its own, as each incarnation of a bench. The two arms take turns in it. Writes starts.md and
starts.csv.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from scipy.stats import t

from tfdist.bench.arm_process import ArmProcess, ArmStart, Post, start_arm
from tfdist.bench.mean import over_seeds
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import Progress
from tfdist.bench.reading import read_folder
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import prepare, run_session
from tfdist.launch.machine import local_machines
from tfdist.models.throughput import throughput

FORKED, EXECUTED = "forked", "executed"
SUITE = """
name = "starts"
preset = "cpu"
rounds = {rounds}
incarnations = {starts}
turn = 2.0
warmup = 1.0
arms = [
  {{ name = "forked", strategy = "multiworker", workers = 2 }},
  {{ name = "executed", strategy = "multiworker", workers = 2 }},
]
[defaults]
dataset = "synthetic"
evaluate = false
"""
PAGE = """# Forked and executed starts

{starts} starts of multiworker with two workers (MobileNetV2, 96 px, batch 16 each) of each kind, {turns} turns each, in turns. Written by
`python -m lab.forked_starts`; {csv} has each start.

| quantity | value | 95 % interval |
| --- | --: | --: |
| images/s, forked over executed | {mean:.3f} | {mean_low:.3f} to {mean_high:.3f} |
| variance between starts, forked over executed | {ratio:.2f} | {ratio_low:.2f} to {ratio_high:.2f} |
| standard deviation between starts, forked | {forked_sd:.1f} % | |
| standard deviation between starts, executed | {executed_sd:.1f} % | |

The first interval is Student's, of the ratios of each pair of starts; the second that of the variances of pairs, which share the drift of the
machine (Maloney and Rastogi, 1970). Variances are of the mean logarithms of a start, the noise of its turns included.
"""


def start_as_named(start: ArmStart, post: Post) -> ArmProcess:
    """Start an arm, without a template if its name says so."""
    return start_arm(replace(start, templates=None) if start.arm == EXECUTED else start, post)


def measure(folder: Path, starts: int, rounds: int) -> pd.DataFrame:
    """The mean logarithm of images/s of each start, a row for each pair."""
    suite = folder / "starts.toml"
    suite.write_text(SUITE.format(rounds=starts * rounds, starts=starts))
    session = prepare(BenchOptions(suite=str(suite), out=folder / "bench"), local_machines())
    run_session(session, RunnerHooks(Progress(), start_as_named))
    records = read_folder(folder / "bench", "").records
    logs = [(record.incarnation, record.arm, math.log(throughput(record))) for record in records if record.ranks]
    frame = pd.DataFrame(logs, columns=["start", "arm", "log"])
    return frame.pivot_table(index="start", columns="arm", values="log")


def variance_ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of the variances of paired values, with its 95 % interval (Maloney and Rastogi, 1970)."""
    number, ratio = len(ours), float(np.var(ours, ddof=1) / np.var(theirs, ddof=1))
    correlation = float(np.corrcoef(ours, theirs)[0, 1])
    k = 1 + 2 * (1 - correlation**2) * float(t.ppf(0.975, number - 2)) ** 2 / (number - 2)
    width = k + math.sqrt(k * k - 1)
    return ratio, ratio / width, ratio * width


def main() -> None:
    """Measure, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=2, help="turns of each start")
    parser.add_argument("--out", type=Path, default=Path("bench_results/calibration"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pairs = measure(Path(folder), options.starts, options.rounds).dropna()
    mean = over_seeds([math.exp(value) for value in pairs[FORKED] - pairs[EXECUTED]])
    if mean is None or mean.interval is None:
        raise SystemExit(f"only {len(pairs)} pairs of starts were measured")
    ratio, low, high = variance_ratio(list(pairs[FORKED]), list(pairs[EXECUTED]))
    csv = options.out / "starts.csv"
    csv.parent.mkdir(parents=True, exist_ok=True)
    np.exp(pairs).round(2).to_csv(csv)
    page = PAGE.format(
        starts=len(pairs), turns=options.rounds, csv=csv.name, ratio=ratio, ratio_low=low, ratio_high=high,
        mean=mean.value, mean_low=mean.interval.low, mean_high=mean.interval.high,
        forked_sd=100 * float(pairs[FORKED].std()), executed_sd=100 * float(pairs[EXECUTED].std()),
    )  # fmt: skip
    (options.out / "starts.md").write_text(page)
    Console(width=120).print(page)


if __name__ == "__main__":
    main()
