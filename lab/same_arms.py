"""Real A/A pairs: one arm under several names, how often its interval excludes 1, and whether the order of starts counts.

python -m lab.same_arms [--names N] [--arms ARM...] [--keep FOLDER]    # about 25 minutes on a quiet machine

Writes same_arms.md and same_arms.csv. A bench shuffles the order in which each incarnation starts its arms, and records it: so that
equal arms show whether the one that starts first is faster.
"""

import argparse
import math
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from scipy.stats import binom, t

from tfdist.bench.folder import BenchPaths
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import Progress
from tfdist.bench.reading import read_folder
from tfdist.bench.report.arm_records import ArmRecords, arms_of
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import prepare, run_session
from tfdist.bench.statistics import Statistics
from tfdist.launch.machine import local_machines

ARMS = {
    "one-device": 'strategy = "one-device"',
    "mirrored": 'strategy = "mirrored"\ndevices = 2',
    "multiworker": 'strategy = "multiworker"\nworkers = 2',
    "parameter-server": 'strategy = "parameter-server"\nworkers = 2\nps = 1',
}
NAMES = 10
SUITE = """
name = "{name}"
preset = "smoke"
turn = 1.0
window = 0.3
warmup = 1.0
arms = [{arms}]
[defaults]
{choices}
dataset = "synthetic"
evaluate = false
"""
PAGE = """# Real pairs of equal arms

{pairs} pairs of one arm under two names, {starts} starts of {rounds} rounds each (MobileNetV2, preset smoke). Written by `python -m lab.same_arms`;
same_arms.csv has each pair.

- 95 % intervals that exclude 1: **{excluded} of {pairs}** with the floor of reports, {without} without it. Of {pairs} right ones, {expected:.1f} are expected, and more than
  {most} in 5 % of cases.
- An arm's start differs from that of its twin by {start_sd:.1f} % of its images/s (standard deviation of one start, the noise of its turns of {turn_sd:.1f} % each included).
- Order of starts: of two equal arms in one incarnation, the one that starts first is {order:.3f} times as fast ({low:.3f} to {high:.3f}, over {number} starts of pairs{by_arm}).

{table}
"""


def measure(name: str, folder: Path, names: int) -> list[ArmRecords]:
    """The arms of a bench in `folder`, which continues there if it was interrupted."""
    root = folder / name
    resume = BenchPaths(root).bench.exists()
    suite = folder / f"{name}.toml"
    arms = ", ".join(f'{{ name = "{name}/{number}" }}' for number in range(names))
    suite.write_text(SUITE.format(name=name, choices=ARMS[name], arms=arms), encoding="utf-8")
    options = BenchOptions(resume=root) if resume else BenchOptions(suite=str(suite), out=root)
    session = prepare(options, local_machines())
    if session.to_run:
        run_session(session, RunnerHooks(Progress()))
    return [arm for arm in arms_of([read_folder(root, "")]) if arm.measured]


def pair_row(strategy: str, arm: ArmRecords, twin: ArmRecords, plain: Statistics) -> dict[str, object]:
    """A line of same_arms.csv."""
    (found,) = plain.compare([(arm.label, twin.label)])
    (bare,) = Statistics(plain.rounds, floor=0.0).compare([(arm.label, twin.label)])
    values: dict[str, object] = {"strategy": strategy, "pair": f"{arm.arm} over {twin.arm}", "ratio": found.ratio}
    for name, each in (("", found), ("bare_", bare)):
        low, high = (each.interval.low, each.interval.high) if each.interval else (math.nan, math.nan)
        values |= {f"{name}low": low, f"{name}high": high, f"{name}excludes_1": not low <= 1 <= high}
    return values


def pair_starts(arm: ArmRecords, twin: ArmRecords) -> list[float]:
    """Logarithms of the images/s of the arm that started first over those of the other, one for each incarnation."""
    logs: dict[int, list[float]] = {}
    for block, rate in arm.rates.items():
        if block in twin.rates:
            logs.setdefault(block.incarnation, []).append(math.log(rate / twin.rates[block]))
    first = {start.incarnation: start.order for start in arm.starts}
    second = {start.incarnation: start.order for start in twin.starts}
    return [math.copysign(1, second[number] - first[number]) * float(np.mean(each)) for number, each in logs.items()]


def turn_squares(arms: list[ArmRecords]) -> list[float]:
    """Variances of the turns of each incarnation about arm and round."""
    logs = pd.DataFrame(
        {arm.arm: {block: math.log(rate) for block, rate in arm.rates.items()} for arm in arms}
    ).dropna()
    found = []
    for _, each in logs.groupby([block.incarnation for block in logs.index]):
        if len(each) < 2:  # disturbed turns were measured again, as blocks of their own
            continue
        rest = each.sub(each.mean(axis=1), axis=0) - (each.mean() - each.to_numpy().mean())
        found.append(float((rest**2).to_numpy().sum() / ((len(each) - 1) * (len(arms) - 1))))
    return found


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parents[1] / "bench_results" / "calibration"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--names", type=int, default=NAMES, help="of each arm")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM", help=", ".join(ARMS))
    parser.add_argument("--keep", type=Path, help="a folder for the benches; they continue there")
    options = parser.parse_args()
    console = Console()
    rows: list[dict[str, object]] = []
    starts: list[tuple[str, float]] = []
    squares: list[float] = []
    folder = options.keep or Path(tempfile.mkdtemp(prefix="same-arms-"))
    folder.mkdir(parents=True, exist_ok=True)
    for name in options.arms:
        console.print(f"{name}: {options.names} arms, in {folder}")
        arms = measure(name, folder, options.names)
        statistics = Statistics({arm.label: arm.rates for arm in arms})
        for arm, twin in list(pairwise(arms))[::2]:
            rows.append(pair_row(name, arm, twin, statistics))
            starts += [(name, log) for log in pair_starts(arm, twin)]
        squares += turn_squares(arms)
    write(options.out, rows, starts, squares)
    console.print(f"report: {options.out / 'same_arms.md'}")


def write(out: Path, rows: list[dict[str, object]], starts: list[tuple[str, float]], squares: list[float]) -> None:
    """same_arms.csv and same_arms.md."""
    table = pd.DataFrame(rows)
    logs = np.array([log for _, log in starts])
    half = t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    low, high = (math.exp(logs.mean() + sign * half) for sign in (-1, 1))
    by_strategy = pd.DataFrame(starts, columns=["strategy", "log"]).groupby("strategy", sort=False)["log"]
    means = ", ".join(f"{name} {math.exp(mean):.3f}" for name, mean in by_strategy.mean().items())
    lines = [
        f"| {row['pair']} | {row['ratio']:.3f} | {row['low']:.3f} to {row['high']:.3f} | {'**yes**' if row['excludes_1'] else ''} |"
        for row in rows
    ]
    page = PAGE.format(
        pairs=len(rows),
        starts=4,
        rounds=3,
        excluded=int(table.excludes_1.sum()),
        without=int(table.bare_excludes_1.sum()),
        expected=0.05 * len(rows),
        most=int(binom.ppf(0.95, len(rows), 0.05)),
        start_sd=100 * logs.std(ddof=0) / math.sqrt(2),
        turn_sd=100 * math.sqrt(np.mean(squares)),
        order=math.exp(logs.mean()),
        low=low,
        high=high,
        number=len(logs),
        by_arm=f"; {means}",
        table="\n".join(["| pair | ratio | 95 % interval | excludes 1 |", "| --- | --: | --: | --- |", *lines]),
    )
    table.to_csv(out / "same_arms.csv", index=False, float_format="%.4g", lineterminator="\n")
    (out / "same_arms.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
