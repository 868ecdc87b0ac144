"""A small version of bench_results/calibration/adaptive.md: with these seeds it always gives the same shares."""

import math
from pathlib import Path

import pytest

from lab import calibrate_adaptive
from lab.calibrate_adaptive import (
    CPU,
    NOISY,
    PARTS,
    QUIET,
    Bench,
    Case,
    Rule,
    bench_of,
    main,
    misses_of,
    one_bench,
    shares,
)  # fmt: skip
from lab.simulated_suites import cpu_suite, gpu_suite, ten_arms
from tfdist.bench import adaptive
from tfdist.bench.adaptive import FEWEST_STARTS, Look
from tfdist.bench.plan import incarnations, interleave, seconds_left, spread
from tfdist.bench.statistics import ERROR
from tfdist.bench.suites.suite import load_suite
from tfdist.models.spec import TrainingSpec

BENCHES = 150
TOLERANCE = 3 * (0.95 * 0.05 / BENCHES) ** 0.5
"""Three standard errors of a share of 5 %."""


def test_a_clear_winner_drops_all_but_two_equal_arms() -> None:
    bench = bench_of(Case(ten_arms(better=1.0), *QUIET), seed=1)
    starts = bench.measure(Rule())
    assert bench.slower == {str(number) for number in range(9)}
    to_the_end = tuple(range(starts))
    assert bench.starts == {**dict.fromkeys(bench.rates, (0,)), **dict.fromkeys("019", to_the_end)}
    assert starts == FEWEST_STARTS
    false, named, bias, of_best = bench.report(starts, ERROR)
    assert (false, named) == (0, 1)
    assert bias == of_best == pytest.approx(0, abs=0.05)
    assert bench.seconds / bench.full().seconds == pytest.approx((10 + (starts - 1) * 3) / 40)


def test_baselines_are_measured_as_long_as_an_arm_needs_them() -> None:
    bench = bench_of(CPU[0], seed=1)
    starts = bench.measure(Rule())
    assert {"parameter-server/1-ps", "parameter-server/2-ps", "one-device"} <= bench.slower
    assert bench.starts["one-device"] == bench.starts["independent"] == tuple(range(starts))
    assert bench.starts["parameter-server/1-ps"] == bench.starts["parameter-server/2-ps"] == (0,)


def test_the_best_is_dropped_when_a_look_calls_it_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate_adaptive, "look", lambda *args, **keys: Look("0", slower=("9",)))
    best_dropped, false, *_ = one_bench(bench_of(Case(ten_arms(better=0.1), *QUIET), seed=1), Rule())
    assert (best_dropped, false) == (True, 1)


@pytest.mark.parametrize(("better", "false"), [(0.03, 0), (0.1, 1)])
def test_an_arm_that_is_said_to_be_as_fast_may_be_five_per_cent_faster(
    better: float, false: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate_adaptive, "look", lambda *args, **keys: Look("0"))
    bench = bench_of(Case(ten_arms(better), *QUIET), seed=1)
    starts = bench.measure(Rule())
    assert starts == FEWEST_STARTS
    assert ("9", "0", math.log1p(0.05)) in bench.said
    bench.rates = {arm: dict.fromkeys(turns, 1.0 + 1e-06 * (arm == "0")) for arm, turns in bench.rates.items()}
    assert bench.report(starts, ERROR)[0] == false


def test_the_time_is_that_of_the_plan() -> None:
    suite = load_suite("cpu")
    plan = interleave([arm.name for arm in suite.arms], suite.rounds, suite.seed)
    specs = {arm.name: TrainingSpec(**arm.choices) for arm in suite.arms}
    planned_s = seconds_left(incarnations(plan, spread(suite.rounds, suite.incarnations)), specs, suite)
    assert bench_of(CPU[0], seed=1).full().seconds == pytest.approx(planned_s)
    assert Bench(gpu_suite(8), {arm.name: {} for arm in gpu_suite(8).arms}).full().seconds == pytest.approx(7960)


def test_arms_compete_on_several_devices_if_there_are_any() -> None:
    assert {number: (len(gpu_suite(number).arms), len(gpu_suite(number).ranked)) for number in (1, 2, 4, 8)} == {
        1: (6, 6), 2: (24, 14), 4: (42, 28), 8: (60, 42),
    }  # fmt: skip
    assert gpu_suite(8).baselines["mirrored/auto/8/xla"] == ["one-device/xla", "independent/8/xla"]
    assert "independent" not in cpu_suite().ranked


def test_a_miss_is_more_than_two_standard_errors_above_the_target() -> None:
    misses = misses_of(2000, most_time=30)
    missed = {"best_dropped": 1.5, "false": 6.0, "time": 30.1, "bias": -0.6}
    assert all(misses[name](value) for name, value in missed.items())
    held = {"best_dropped": 1.4, "false": 5.9, "time": 30.0, "bias": 0.5}
    assert not any(misses[name](value) for name, value in held.items())


@pytest.mark.slow
def test_equal_arms_are_rarely_called_slower_and_the_best_is_hardly_ever_dropped() -> None:
    for better in (0.0, 0.05):
        found = shares(Case(ten_arms(better), *NOISY), BENCHES)
        assert found.best_dropped <= 0.01 + TOLERANCE
        assert found.false <= 0.05 + TOLERANCE
        assert abs(found.bias) < 0.005


@pytest.mark.slow
def test_without_a_correction_for_looks_and_pairs_equal_arms_are_called_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "ERROR", 4 * ERROR)
    monkeypatch.setattr(Rule, "look", lambda self, statistics, alive, starts, rivals: adaptive.look(
        statistics, alive, starts=starts, planned=4, equal=0.05, number=2
    ))  # fmt: skip
    assert shares(Case(ten_arms(), *NOISY), BENCHES).false > 0.05 + TOLERANCE


@pytest.mark.slow
def test_the_page_has_a_row_for_each_case_and_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "calibration").mkdir()
    monkeypatch.setattr(calibrate_adaptive, "ROOT", tmp_path)
    monkeypatch.setattr(calibrate_adaptive, "RULE_BENCHES", 1)
    monkeypatch.setattr(calibrate_adaptive, "PARTS", {name: (part[:1], most) for name, (part, most) in PARTS.items()})
    monkeypatch.setattr(calibrate_adaptive, "RULE_CASES", CPU[:1])
    main(2)
    text = (tmp_path / "calibration" / "adaptive.md").read_text(encoding="utf-8")
    assert text.count("\n| gpu on 8 |") == text.count("\n| gpu on 4 |") == text.count("\n| ten equal |") == 1
    assert text.count("\n| cpu |") == 1 + len(calibrate_adaptive.RULES)
    assert "of 4 rows miss a target" in text
