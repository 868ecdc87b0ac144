"""A small version of bench_results/calibration/statistics.md: with these seeds it always gives the same shares."""

import numpy as np
import pytest

from lab.calibrate_statistics import DEFAULT, Scenario, bootstrap_holds, recorded_noise, shares

pytestmark = pytest.mark.slow

BENCHES = 150
TOLERANCE = 3 * (0.95 * 0.05 / BENCHES) ** 0.5
"""Three standard errors of a share of 95 %."""


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(rounds=3, arms=3, starts_sd=0.0, unequal=False),
        Scenario(rounds=12, arms=2, starts_sd=0.0, unequal=False),
        Scenario(rounds=12, arms=3, starts_sd=0.01, unequal=False),
        Scenario(rounds=12, arms=5, starts_sd=0.0, unequal=True),
        Scenario(rounds=12, arms=5, starts_sd=0.02, unequal=False, incarnations=6),
    ],
    ids=str,
)
def test_intervals_hold_the_true_value_and_equal_arms_are_rarely_called_different(scenario: Scenario) -> None:
    found = shares(scenario, BENCHES)
    assert found.figure_holds >= 0.95 - TOLERANCE
    assert found.ratio_holds >= 0.95 - TOLERANCE
    assert found.called_different <= 0.05 + TOLERANCE


def test_the_default_bench_finds_a_slow_down_of_ten_per_cent() -> None:
    found = shares(DEFAULT, BENCHES)
    assert found.slow_down_found >= 0.9 - 3 * (0.9 * 0.1 / BENCHES) ** 0.5
    assert found.called_different <= 0.05 + TOLERANCE


def test_a_bootstrap_of_three_rounds_is_no_95_per_cent_interval() -> None:
    assert 0.7 < bootstrap_holds(rounds=3, benches=500) < 0.8


def test_the_recorded_noise_has_heavy_tails() -> None:
    noise = recorded_noise()
    assert (noise.mean(), noise.std()) == (pytest.approx(0, abs=1e-9), pytest.approx(1))
    assert np.mean(noise**4) > 4  # 3 for a normal distribution
