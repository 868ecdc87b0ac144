import math
import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from lab.calibrate_compare import DEFAULT, Pair, shares
from tfdist.bench.design import Block
from tfdist.bench.statistics import ArmVerdict, Statistics
from tfdist.bench.unpaired import TwoBenches, level_noise

Rounds = dict[str, dict[Block, float]]
PAIRS = 120


def bench(
    rates: Mapping[str, float], seed: int = 0, sd: float = 0.01, number: int = 12, machine: float = 1.0
) -> Rounds:
    """Turns of four starts, with noise."""
    draw = random.Random(seed)
    return {
        arm: {Block(1, n, 4 * n // number): machine * rate * draw.lognormvariate(0, sd) for n in range(number)}
        for arm, rate in rates.items()
    }


def two(base: Rounds, new: Rounds) -> TwoBenches:
    return TwoBenches(Statistics(base), Statistics(new))


RATES = {"one": 100.0, "a": 180.0, "b": 150.0}


def test_an_anchored_ratio_is_one_of_speed_ups_and_ignores_the_machine() -> None:
    benches = two(bench(RATES, sd=0.0001), bench({**RATES, "a": 162.0}, 1, sd=0.0001, machine=1.5))
    a, b = benches.compare([("a", "one"), ("b", "one")])
    assert a.ratio == pytest.approx(0.9, rel=1e-3)
    assert b.ratio == pytest.approx(1.0, rel=1e-3)
    (plain,) = benches.compare([("a", None)])
    assert plain.ratio == pytest.approx(1.35, rel=1e-3)


def test_the_slowed_arm_is_slower_and_no_other() -> None:
    benches = two(bench(RATES), bench({**RATES, "b": 135.0}, 1))
    verdicts = [each.verdict for each in benches.compare([("one", None), ("a", "one"), ("b", "one")])]
    assert verdicts == [ArmVerdict.CANNOT_TELL, ArmVerdict.CANNOT_TELL, ArmVerdict.SLOWER]


def test_a_machine_that_changed_widens_anchored_intervals() -> None:
    widths = []
    for machine in (1.0, 1.5):
        (found,) = two(bench(RATES), bench(RATES, 1, machine=machine)).compare([("a", "one")])
        assert found.interval is not None
        widths.append(found.interval.high / found.interval.low)
    assert widths[1] > widths[0] * 1.1


def test_the_drift_of_either_bench_widens_the_interval_of_images_per_s() -> None:
    steady = bench(RATES, sd=0.001)
    drifting = {arm: {b: rate * 0.98**b.round for b, rate in turns.items()} for arm, turns in steady.items()}
    for base, new in ((steady, drifting), (drifting, steady)):
        (found,) = two(base, new).compare([("a", None)])
        assert found.interval is not None
        assert found.interval.low < 0.9 < 1.1 < found.interval.high
    narrow = two(steady, bench(RATES, 1, sd=0.001)).compare([("a", None)])[0].interval
    assert narrow is not None
    assert narrow.high / narrow.low < 1.03


def test_starts_that_differ_widen_the_interval() -> None:
    def started(seed: int) -> Rounds:
        draw = random.Random(seed)
        luck = {(arm, start): draw.lognormvariate(0, 0.05) for arm in RATES for start in range(4)}
        turns = bench(RATES, seed, sd=0.002)
        return {arm: {b: r * luck[arm, b.incarnation] for b, r in each.items()} for arm, each in turns.items()}

    (found,) = two(started(1), started(2)).compare([("a", "one")])
    (steady,) = two(bench(RATES, 1, sd=0.002), bench(RATES, 2, sd=0.002)).compare([("a", "one")])
    assert found.interval is not None
    assert steady.interval is not None
    assert math.log(found.interval.high / found.interval.low) > 2 * math.log(steady.interval.high / steady.interval.low)


@pytest.mark.parametrize("number", [1, 2])
def test_too_few_rounds_in_one_bench_have_no_verdict(number: int) -> None:
    (found,) = two(bench(RATES), bench(RATES, 1, number=number)).compare([("a", "one")])
    assert (found.interval, found.verdict) == (None, ArmVerdict.CANNOT_TELL)


def test_more_arms_make_wider_intervals() -> None:
    benches = two(bench(RATES), bench(RATES, 1))
    alone, together = benches.compare([("a", "one")])[0], benches.compare([("a", "one"), ("b", "one")])[0]
    assert alone.interval is not None
    assert together.interval is not None
    assert (alone.interval.level, together.interval.level) == (0.95, 0.975)
    assert together.interval.high > alone.interval.high


def test_the_level_of_a_walking_machine_is_known_as_badly_as_it_is() -> None:
    """The mean of a random walk over [2, 3] differs from that over [0, 1] by a variance of 5/3 of its step's."""
    draw = np.random.default_rng(0)
    walks = np.cumsum(draw.standard_normal((400, 3 * 100)), axis=1) / 10
    true = float(np.var(walks[:, 200:].mean(axis=1) - walks[:, :100].mean(axis=1)))
    blocks = [Block(1, number, 1) for number in range(100)]
    found = []
    for walk in walks:
        level = level_noise({"a": dict(zip(blocks, np.exp(walk[:100]).tolist(), strict=True))})
        assert level is not None
        found.append(2 * level.value)
    assert np.mean(found) == pytest.approx(true, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pair",
    [
        Pair(DEFAULT),
        pytest.param(Pair(DEFAULT, jump_sd=0.3), marks=pytest.mark.thorough),
        pytest.param(Pair(DEFAULT, anchored=False), marks=pytest.mark.thorough),
    ],
    ids=["same machine", "another machine", "without anchor"],
)
def test_equal_benches_are_rarely_called_slower(pair: Pair) -> None:
    """A small version of bench_results/calibration/compare.md; always the same shares."""
    found = shares(pair, PAIRS)
    assert found.called_slower <= 0.05 + 3 * (0.05 * 0.95 / PAIRS) ** 0.5
    assert found.fails <= 0.05
    assert found.holds >= 0.93


@pytest.mark.slow
def test_a_slow_down_of_ten_per_cent_is_found_when_the_noise_allows() -> None:
    quiet = Pair(replace(DEFAULT, turn_sd=0.02))
    found = shares(quiet, PAIRS)
    assert found.slow_down_found > 0.7
    assert found.only_it > 0.9 * found.slow_down_found
