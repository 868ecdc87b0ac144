"""Whether tasks that are forked from a template train as those that are executed: one arm, twice started each way.

python -m lab.forked_starts [--starts N] [--rounds N] [--out DIR]    # about 8 minutes on a quiet machine

Each start has a template of its own, as each incarnation of a bench, and the four arms take turns in it. The difference
of two arms that were started alike is free of the drift of the machine. Writes starts.md and starts.csv.
"""

import argparse
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from scipy.stats import f

from tfdist.bench.arm_process import ArmProcess, ArmStart, Post, start_arm
from tfdist.bench.mean import over_seeds
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import Progress
from tfdist.bench.reading import read_folder
from tfdist.bench.run_session import run_session
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import prepare
from tfdist.launch.machine import local_machines
from tfdist.models.throughput import throughput

KINDS = ("forked", "executed")
ARMS = [f"{kind}/{number}" for kind in KINDS for number in (1, 2)]
SUITE = """
name = "starts"
preset = "cpu"
all = true
rounds = {rounds}
incarnations = {starts}
turn = 1.5
warmup = 1.0
arms = [{arms}]
[defaults]
strategy = "one-device"
dataset = "synthetic"
evaluate = false
"""
PAGE = """# Forked and executed starts

{starts} starts of one-device of each kind (MobileNetV2, 96 px, batch 16): two in each of {pairs} incarnations, with {turns} turns each. Written by
`python -m lab.forked_starts`; {csv} has the images/s of each start.

| quantity | value | 95 % interval |
| --- | --: | --: |
| images/s, forked over executed | {mean:.3f} | {mean_low:.3f} to {mean_high:.3f} |
| standard deviation of one start, forked | {forked:.1f} % | |
| standard deviation of one start, executed | {executed:.1f} % | |
| variance of a start, forked over executed | {ratio:.2f} | {ratio_low:.2f} to {ratio_high:.2f} |

The first interval is Student's, over incarnations. The variance of a start is half of that of the difference of two starts in one incarnation, the
noise of their turns included; its interval is that of the F distribution.
"""


def start_as_named(start: ArmStart, post: Post) -> ArmProcess:
    """Start an arm, without a template if its name says so."""
    return start_arm(start if start.arm.startswith("forked") else replace(start, templates=None), post)


def measure(folder: Path, starts: int, rounds: int) -> pd.DataFrame:
    """The mean logarithm of images/s of each start: a row for each incarnation, a column for each arm."""
    suite = folder / "starts.toml"
    names = ", ".join(f'{{ name = "{arm}" }}' for arm in ARMS)
    suite.write_text(SUITE.format(rounds=starts * rounds, starts=starts, arms=names))
    session = prepare(BenchOptions(suite=str(suite), out=folder / "bench"), local_machines())
    run_session(session, RunnerHooks(Progress(), start_as_named))
    records = read_folder(folder / "bench", "").records
    logs = [(record.incarnation, record.arm, math.log(throughput(record))) for record in records if record.ranks]
    frame = pd.DataFrame(logs, columns=["incarnation", "arm", "log"])
    return frame.pivot_table(index="incarnation", columns="arm", values="log").dropna()


def main() -> None:
    """Measure, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=24, help="of each kind, an even number")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each start")
    parser.add_argument("--out", type=Path, default=Path("bench_results/calibration"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        logs = measure(Path(folder), options.starts // 2, options.rounds)
    means = [logs[[f"{kind}/1", f"{kind}/2"]].mean(axis=1) for kind in KINDS]
    mean = over_seeds([math.exp(value) for value in means[0] - means[1]])
    if mean is None or mean.interval is None:
        raise SystemExit(f"only {len(logs)} incarnations were measured")
    forked, executed = (float(np.var(logs[f"{kind}/1"] - logs[f"{kind}/2"], ddof=1)) / 2 for kind in KINDS)
    width = float(f.ppf(0.975, len(logs) - 1, len(logs) - 1))
    csv = options.out / "starts.csv"
    csv.parent.mkdir(parents=True, exist_ok=True)
    np.exp(logs).round(2).to_csv(csv)
    page = PAGE.format(
        starts=2 * len(logs), pairs=len(logs), turns=options.rounds, csv=csv.name,
        mean=mean.value, mean_low=mean.interval.low, mean_high=mean.interval.high,
        forked=100 * math.sqrt(forked), executed=100 * math.sqrt(executed),
        ratio=forked / executed, ratio_low=forked / executed / width, ratio_high=forked / executed * width,
    )  # fmt: skip
    (options.out / "starts.md").write_text(page)
    Console(width=120).print(page)


if __name__ == "__main__":
    main()
