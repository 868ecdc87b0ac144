import math

import numpy as np
import pytest

from tfdist.bench.predict.sync import slowest_over_mean


@pytest.mark.parametrize(("devices", "later"), [(2, 0.5642), (4, 1.0294), (10, 1.5388), (100, 2.5076), (1000, 3.2414)])
def test_of_nearly_normal_times_it_is_the_known_order_statistic(devices: int, later: float) -> None:
    (found,) = slowest_over_mean(np.array([float(devices)]), np.array([1e-4]))[0]
    assert (found - 1) / 1e-4 == pytest.approx(later, rel=2e-3)


def test_one_device_waits_for_none_and_more_wait_longer() -> None:
    found = slowest_over_mean(np.array([1.0, 2, 8, 512]), np.array([0.0, 0.1, 0.4]))
    assert found[:, 0] == pytest.approx([1, 1, 1])
    assert found[0] == pytest.approx([1, 1, 1, 1])
    assert (np.diff(found[1:], axis=1) > 0).all()
    assert (np.diff(found[:, 1:], axis=0) > 0).all()


def test_it_agrees_with_drawn_times() -> None:
    draw = np.random.default_rng(0)
    times = np.exp(0.3 * draw.standard_normal((20000, 8)))
    expected = times.max(axis=1).mean() / math.exp(0.3**2 / 2)
    assert slowest_over_mean(np.array([8.0]), np.array([0.3]))[0, 0] == pytest.approx(expected, rel=0.01)
