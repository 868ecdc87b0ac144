"""A small version of bench_results/calibration/statistics.md: with these seeds it always gives the same shares."""

import numpy as np
import pytest

from lab.calibrate_statistics import Scenario, recorded_noise, shares, shares_of_versions
from tfdist.bench.against import MOST_STARTS, PRECISION
from tfdist.bench.compare.gate import NOISY, gate_needs

pytestmark = pytest.mark.slow

BENCHES = 150
TOLERANCE = 3 * (0.95 * 0.05 / BENCHES) ** 0.5
"""Three standard errors of a share of 95 %."""


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(2, 0.0, 0.06),
        Scenario(2, 0.023, bad=0.02),
        pytest.param(Scenario(10, 0.023, unequal=True), marks=pytest.mark.thorough),
        pytest.param(Scenario(10, 0.023, incarnations=1), marks=pytest.mark.thorough),
        Scenario(2, 0.023, incarnations=2),
        pytest.param(Scenario(3, 0.01, incarnations=6), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_intervals_hold_the_true_value_and_equal_arms_are_rarely_called_different(scenario: Scenario) -> None:
    found = shares(scenario, BENCHES)
    assert found.figure_holds >= 0.95 - TOLERANCE
    assert found.ratio_holds >= 0.95 - TOLERANCE
    assert found.called_different <= 0.05 + TOLERANCE


@pytest.mark.thorough
def test_a_gate_has_the_starts_that_it_needs_to_find_twice_its_bound() -> None:
    starts, precision = gate_needs(2, 0.05, 3)
    scenario = Scenario(4, 0.023, incarnations=NOISY * starts, precision=precision, fewest=starts)
    found = shares_of_versions(scenario, BENCHES)
    assert found.one_fails >= 0.9 - 3 * (0.9 * 0.1 / BENCHES) ** 0.5
    assert found.fails <= TOLERANCE
    assert found.called_different <= 0.05 + TOLERANCE


@pytest.mark.thorough
def test_two_versions_have_the_starts_that_the_noise_asks_for() -> None:
    quiet = shares_of_versions(Scenario(2, 0.01, incarnations=MOST_STARTS, precision=PRECISION), BENCHES)
    noisy = shares_of_versions(Scenario(2, 0.023, 0.06, incarnations=MOST_STARTS, precision=PRECISION), BENCHES)
    assert 4 <= quiet.measured_starts < noisy.measured_starts < MOST_STARTS
    for found in (quiet, noisy):
        assert found.one_found >= 0.9 - 3 * (0.9 * 0.1 / BENCHES) ** 0.5
        assert found.called_different <= 0.05 + TOLERANCE


def test_the_recorded_noise_has_heavy_tails() -> None:
    noise = recorded_noise()
    assert (noise.mean(), noise.std()) == (pytest.approx(0, abs=1e-9), pytest.approx(1))
    assert np.mean(noise**4) > 4  # 3 for a normal distribution
