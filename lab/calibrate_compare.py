"""How often `tfdist compare` is right: two simulated benches, one after the other, on noise like the recorded one.

python -m lab.calibrate_compare [pairs]    # writes bench_results/calibration/compare.md
"""

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from lab.calibrate_statistics import (
    DRIFT_SD,
    ROOT,
    SLOW_DOWN,
    Array,
    Scenario,
    holds,
    incarnations,
    markdown,
    recorded_noise,
    rows_that_miss,
    statistics,
)
from tfdist.bench.compare.gate import is_too_slow
from tfdist.bench.statistics import ArmVerdict, Comparison
from tfdist.bench.unpaired import TwoBenches

BOUND = 0.05
"""Value of --fail-slower."""


@dataclass(frozen=True)
class Pair:
    """Two benches of equal arms. Arm 0 is the anchor."""

    bench: Scenario
    anchored: bool = True
    jump_sd: float = 0.0
    """How much the machine's speed differs from one bench to the other beside its drift: another machine."""


@dataclass(frozen=True)
class Shares:
    """Shares of pairs of benches, or of intervals."""

    holds: float
    """Intervals of one comparison that hold the true ratio, 1."""
    called_slower: float
    """Pairs in which some arm is called slower."""
    fails: float
    """Pairs in which some arm is slower by more than BOUND, so that --fail-slower exits with 1."""
    slow_down_found: float
    """Pairs that call an arm slower which became 10 % slower in the second bench."""
    only_it: float
    """Pairs that call that arm slower and no other."""
    slow_down_fails: float
    """Pairs in which that arm is slower by more than BOUND for sure."""


def simulate(pair: Pair, draw: np.random.Generator) -> tuple[Array, Array]:
    """Log throughputs of arms x rounds in two benches. The second begins one bench's time after the end of the first.

    The machine drifts on between them. Arms react to drift differently, but the same in both benches.
    """
    bench = pair.bench
    shape = (bench.arms, bench.rounds)
    turns = bench.arms * bench.rounds
    reaction = draw.uniform(0.5, 1.5, (bench.arms, 1))
    spread = np.resize([0.5, 1.0, 2.0] if bench.unequal else [1.0], bench.arms)[draw.permutation(bench.arms)]
    walk = np.cumsum(draw.standard_normal(3 * turns)) * DRIFT_SD / math.sqrt(turns)
    walk[2 * turns :] += pair.jump_sd * draw.standard_normal()
    logs = []
    for begin in (0, 2 * turns):
        noise = bench.turn_sd * spread[:, None] * draw.choice(recorded_noise(), shape)
        starts = bench.starts_sd * draw.standard_normal((bench.arms, bench.incarnations))[:, incarnations(bench)]
        order = np.array([draw.permutation(bench.arms) for _ in range(bench.rounds)]).T
        logs.append(noise + starts + reaction * walk[begin + order + bench.arms * np.arange(bench.rounds)])
    return logs[0], logs[1]


def compare(pair: Pair, base: Array, new: Array) -> tuple[Comparison, ...]:
    """The comparisons of `tfdist compare`: all arms, the anchor first; on another machine without it."""
    benches = TwoBenches(*(statistics(logs, pair.bench) for logs in (base, new)))
    first = [] if pair.anchored and pair.jump_sd else [("0", None)]
    anchor = "0" if pair.anchored else None
    return benches.compare([*first, *((str(arm), anchor) for arm in range(1, pair.bench.arms))])


def one_pair(pair: Pair, seed: int) -> tuple[float, ...]:
    """The shares of a single pair of benches."""
    base, new = simulate(pair, np.random.default_rng(seed))
    found = compare(pair, base, new)
    held = float(np.mean([holds(each.interval, 1.0) for each in found]))
    slower = [each.verdict is ArmVerdict.SLOWER for each in found]
    fails = [is_too_slow(each, BOUND) for each in found]
    new[-1] += math.log(SLOW_DOWN)
    planted = compare(pair, base, new)
    after = [each.verdict is ArmVerdict.SLOWER for each in planted]
    return held, any(slower), any(fails), after[-1], after[-1] and not any(after[:-1]), is_too_slow(planted[-1], BOUND)


def shares(pair: Pair, pairs: int, seed: int = 0) -> Shares:
    """The shares of a number of pairs."""
    return Shares(*np.mean([one_pair(pair, seed + number) for number in range(pairs)], axis=0).tolist())


DEFAULT = Scenario(10, 0.0)
"""Suite `cpu`."""
BENCHES = [
    Scenario(arms, starts, turns) for arms, turns, starts in product((2, 4, 10), (0.03, 0.06), (0.0, 0.01, 0.023))
]
OTHERS = [
    replace(DEFAULT, unequal=True), replace(DEFAULT, unequal=True, starts_sd=0.023),
    *(replace(DEFAULT, incarnations=number, starts_sd=0.023) for number in (1, 2, 8)),
]  # fmt: skip
PAIRS = [Pair(bench) for bench in (*BENCHES, *OTHERS)]
MACHINES = [Pair(replace(DEFAULT, starts_sd=starts), jump_sd=jump) for starts in (0.0, 0.023) for jump in (0.1, 0.3)]
PLAIN = [Pair(replace(DEFAULT, starts_sd=starts), anchored=False) for starts in (0.0, 0.023)]

TEXT = """# Calibration of `tfdist compare`

How often `tfdist compare` is right in simulated pairs of benches with equal arms. Written by `python -m lab.calibrate_compare`.
A share of 5 % is known to +-{error:.1f} (standard error).

Noise, drift and starts are those of [statistics.md](statistics.md): turns of 3 and 6 % with the recorded tails, a machine that drifts by 6 % in the time of a bench, and goes on drifting for as
long again before the second bench. An arm reacts to drift by half to one and a half times as much as the machine, the same in both benches. "machine": how much its speed
differs between the benches beside that.

Shares in %, and the targets; **bold** misses the target:

- "holds": intervals that hold the true ratio, 1: at least 93. They are those of several comparisons (Holm), so more than 95 is expected.
- "called slower": pairs in which any arm is called slower: at most 5.
- "fails": pairs of equal benches for which `--fail-slower 5%` exits with 1.
- "10 % found": pairs that call an arm slower that is 10 % slower in the second bench; "only it": and no other. "it fails": that arm exceeds the bound of 5 % for sure.

{missed} of {rows} rows miss a target.

## Anchored by one device

{anchored}

## Another machine

{machines}

## Without an anchor

Images/s are compared as they are: the interval contains the drift of the machine.

{plain}
"""
NAMES = {
    "incarnations": "incarnations", "arms": "arms", "turn_sd": "turn", "unequal": "spreads",
    "starts_sd": "starts", "jump_sd": "machine", "holds": "holds", "called_slower": "called slower", "fails": "fails",
    "slow_down_found": "10 % found", "only_it": "only it", "slow_down_fails": "it fails",
}  # fmt: skip
MISSES = {"holds": lambda share: share < 93, "called_slower": lambda share: share > 5, "fails": lambda share: share > 5}


def row(pairs: int, pair: Pair) -> dict[str, float | str | bool]:
    """A pair and its shares, in per cent."""
    values = {**asdict(pair.bench), "jump_sd": pair.jump_sd, "anchored": pair.anchored}
    percent = {name: 100 * value for name, value in asdict(shares(pair, pairs)).items()}
    return {**values, **{name: 100 * values[name] for name in ("turn_sd", "starts_sd", "jump_sd")}, **percent}


def main(pairs: int) -> None:
    """Write compare.md."""
    with ProcessPoolExecutor() as pool:
        table = pd.DataFrame(list(pool.map(partial(row, pairs), [*PAIRS, *MACHINES, *PLAIN])))
    moved = table.jump_sd > 0
    parts = {"anchored": table[table.anchored & ~moved], "machines": table[moved], "plain": table[~table.anchored]}
    text = TEXT.format(
        error=100 * math.sqrt(0.05 * 0.95 / pairs),
        missed=rows_that_miss(table, MISSES),
        rows=len(table),
        **{name: markdown(part, NAMES, MISSES) for name, part in parts.items()},
    )
    (ROOT / "calibration" / "compare.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
