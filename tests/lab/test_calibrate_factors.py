"""A small version of bench_results/calibration/factors.md: with these seeds it always gives the same shares."""

import pytest

from lab.calibrate_factors import SCENARIOS, Scenario, arms_of, one_bench, row

pytestmark = pytest.mark.slow

BENCHES = 100


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_fastest_is_measured_and_a_third_of_the_arms_is_not(scenario: Scenario) -> None:
    found = [one_bench(scenario, 10_000 + seed) for seed in range(BENCHES)]
    assert sum(not each.best_measured for each in found) <= 0.01 * BENCHES + 3 * (0.01 * 0.99 * BENCHES) ** 0.5
    limit = 0.75 if scenario.devices < 8 else 0.72
    assert sum(each.measured for each in found) / BENCHES <= limit * len(arms_of(scenario.devices))


def test_a_row_is_of_the_table() -> None:
    assert row(2, SCENARIOS[0]).startswith("| as assumed | ")
