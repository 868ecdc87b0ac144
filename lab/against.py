"""Whether `tfdist bench --against` finds a slow-down of 10 % in one arm or in all, and none where there is none.

python -m lab.against [--benches N] [--out DIR]    # about 8 minutes for each bench, of which there are 3 N

Each bench has two arms, and both versions of a program of which only one number differs: how much it computes in a step.
Adds lines to against.csv after each bench, and continues there; then writes against.md.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import geometric_mean

import pandas as pd
from rich.console import Console

from lab.commands import TFDIST
from tfdist.bench.against import MOST_STARTS, PRECISION
from tfdist.bench.compare.gate import is_too_slow
from tfdist.bench.folder import only_writer
from tfdist.bench.noise import FEWEST_SURE
from tfdist.bench.statistics import ArmVerdict, Comparison, Interval
from tfdist.bench.suites.suite import Suite

SLOWER = 0.9
BOUND = 0.05
WORK, MORE_WORK = 150, 170
"""Matrix products in a step, and in one that is SLOWER: without any, a step takes 15 % of the time (measured). Matrices
of 64 KB: those above 128 KB are mapped and unmapped in each product, and page faults made turns differ twice as much."""
KINDS = {"equal": (), "one arm": ("mirrored",), "all arms": ("mirrored", "one-device")}
"""The strategies under which the new version computes more in each step."""
SUITE = """
name = "against"
command = ["python", "train.py"]
[[arms]]
name = "one-device"
strategy = "one-device"
[[arms]]
name = "mirrored"
strategy = "mirrored"
devices = 2
"""
PROGRAM = Path(__file__).parents[1] / "examples" / "custom_loop.py"
PAGE = """# Two versions of a program

Real benches by `tfdist bench --against`, of two arms, with as many starts as their noise asks for: until each ratio is sure to within {precision:.0%}, from {fewest} to {most}. The new version is
{slower:.0%} as fast in no arm, in one, or in both. Written by `python -m lab.against`; against.csv has each bench.

| slow-down | benches | starts | minutes | ratio | called different | slower arms found | gate of {bound:.0%} fails |
| --- | --: | --: | --: | --: | --: | --: | --: |
{table}

"starts", "minutes": the mean of a bench. "ratio": new over base of the slowed arms, else of all; the geometric mean. "called different": benches that call an arm faster or slower whose versions are equal. "slower arms found": benches that call all arms slower which are. The gate
is computed from the same benches; `--fail-slower 5%` itself asks for more starts.
"""


def program(slower: tuple[str, ...]) -> str:
    """The example of a custom loop, with work in each step that grows under these strategies."""
    text = PROGRAM.read_text(encoding="utf-8")
    work = (
        f"work = {WORK} if type(strategy).__name__ not in {tuple(map(_class_of, slower))} else {MORE_WORK}\n"
        "matrix = tf.linalg.diag(tf.fill([128], 0.999))\n\n\ndef replica_step("
    )
    spin = (
        "    product = matrix\n    for _ in tf.range(work):\n        product = tf.matmul(product, matrix)\n"
        "    with tf.GradientTape() as tape:"
    )
    used = "scores = model(points, training=True) + 0.0 * tf.reduce_sum(product)"  # the gradients need the scores
    changes = {
        "def replica_step(": work,
        "    with tf.GradientTape() as tape:": spin,
        "scores = model(points, training=True)": used,
    }
    for old, new in changes.items():
        if text.count(old) != 1:
            raise SystemExit(f"{PROGRAM} has changed: {old!r} is not in it once")
        text = text.replace(old, new)
    return text


def _class_of(strategy: str) -> str:
    return {"one-device": "OneDeviceStrategy", "mirrored": "MirroredStrategy"}[strategy]


def bench(folder: Path, slower: tuple[str, ...], seed: int) -> list[dict[str, object]]:
    """Measure one bench; the rows of its arms."""
    for name, strategies in (("base", ()), ("new", slower)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "train.py").write_text(program(strategies), encoding="utf-8")
    suite = folder / "against.toml"
    suite.write_text(SUITE, encoding="utf-8")
    began = time.monotonic()
    argv = [TFDIST, "bench", "--suite", str(suite), "--seed", str(seed), "--against", "../base", "--json", "--quiet"]
    done = subprocess.run(
        [*argv, "--out", str(folder / "bench")], cwd=folder / "new", stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} exited with code {done.returncode}")
    rows: list[dict[str, object]] = json.loads(done.stdout.strip().splitlines()[-1])["versions"]
    starts = json.loads((folder / "bench" / "bench.json").read_text(encoding="utf-8"))["suite"]["incarnations"]
    minutes = (time.monotonic() - began) / 60
    return [{**row, "starts": starts, "minutes": minutes} for row in rows]


def judged(rows: pd.DataFrame, kind: str) -> tuple[bool, bool, bool]:
    """Whether one bench called an equal arm different, found all slower ones, and failed the gate."""
    slower = rows.arm.isin(KINDS[kind])
    different = rows.verdict != ArmVerdict.CANNOT_TELL
    gate = [
        is_too_slow(Comparison(row.ratio, Interval(row.low, row.high, 0.95), Suite.rounds, 2), BOUND)
        for row in rows.itertuples()
    ]
    return bool((different & ~slower).any()), bool((rows.verdict[slower] == ArmVerdict.SLOWER).all()), any(gate)


def add(path: Path, kind: str, number: int, rows: list[dict[str, object]]) -> pd.DataFrame:
    """Add the rows of a bench to a file; returns all of it."""
    before = [pd.read_csv(path)] if path.exists() else []
    table = pd.concat([*before, pd.DataFrame([{"kind": kind, "number": number, **row} for row in rows])])
    table.to_csv(path, index=False, float_format="%.4g", lineterminator="\n")
    return table


def measured(benches: int, out: Path, console: Console) -> pd.DataFrame:
    """The rows of all benches, after those that were missing."""
    path = out / "against.csv"
    table = pd.read_csv(path) if path.exists() else pd.DataFrame()
    for number in range(benches):
        for kind, slower in KINDS.items():
            if len(table) and ((table.kind == kind) & (table.number == number)).any():
                continue
            console.print(f"{kind}, bench {number + 1} of {benches}")
            with tempfile.TemporaryDirectory(prefix="against-") as folder:
                rows = bench(Path(folder), slower, seed=number)
            table = add(path, kind, number, rows)
    return table


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benches", type=int, default=10, metavar="N", help="of each kind")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "bench_results" / "compare")
    options = parser.parse_args()
    console = Console()
    with only_writer(options.out):
        table = measured(options.benches, options.out, console)
    lines = []
    for kind in KINDS:
        of_kind = table[table.kind == kind]
        benches = [judged(rows, kind) for _, rows in of_kind.groupby("number")]
        ratio = geometric_mean(of_kind.ratio[of_kind.arm.isin(KINDS[kind] or of_kind.arm)])
        different, found, failed = (sum(column) for column in zip(*benches, strict=True))
        means = (f"{of_kind.starts.mean():.1f}", f"{of_kind.minutes.mean():.1f}", f"{ratio:.3f}")
        cells = (kind, len(benches), *means, different, found if KINDS[kind] else "-", failed)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    page = PAGE.format(
        slower=SLOWER, bound=BOUND, precision=PRECISION, fewest=FEWEST_SURE, most=MOST_STARTS, table="\n".join(lines)
    )
    (options.out / "against.md").write_text(page, encoding="utf-8")
    console.print(f"report: {options.out / 'against.md'}")


if __name__ == "__main__":
    main()
