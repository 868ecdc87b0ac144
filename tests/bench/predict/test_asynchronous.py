import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers

from tfdist.bench.predict.asynchronous import service_s, steps_per_s


def test_one_worker_never_waits() -> None:
    assert steps_per_s(1, np.array([0.3]), np.array([0.1]), 2)[0, 0] == pytest.approx(1 / 0.4)


def test_two_workers_and_one_server_have_the_textbook_rate() -> None:
    """Computing and served in the mean 1 s each: states 2, 1, 0 computing have the weights 1, 2, 2."""
    assert steps_per_s(2, np.array([1.0]), np.array([1.0]), 1)[1, 0] == pytest.approx((2 + 2) / 5)


def test_many_workers_saturate_the_servers() -> None:
    rates = steps_per_s(400, np.array([1.0]), np.array([0.1]), 2)[:, 0]
    assert (np.diff(rates) > -1e-9).all()
    assert rates[-1] == pytest.approx(20.0, rel=0.01)
    assert rates[0] == pytest.approx(1 / 1.1)


@given(floats(0.001, 10), floats(0.001, 10), integers(1, 8), integers(1, 4))
def test_the_service_time_is_found_again(compute: float, service: float, workers: int, servers: int) -> None:
    rate = steps_per_s(workers, np.array([compute]), np.array([service]), servers)[-1]
    assert service_s(rate, workers, np.array([compute]), servers)[0] == pytest.approx(service, rel=1e-3)


def test_workers_that_are_faster_than_computing_have_no_service_time() -> None:
    assert service_s(np.array([3.0]), 2, np.array([1.0]), 1)[0] == 0
