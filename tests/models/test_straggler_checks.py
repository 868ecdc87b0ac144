"""A planted straggler that would not be one is refused, and so are step times that nothing would report."""

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.models.spec import TrainingSpec
from tfdist.models.straggler_checks import check_step_times, check_straggler
from tfdist.strategies.options import Api, StrategyName

TWO = {"strategy": StrategyName.MULTI_WORKER, "workers": 2}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"slow_ms": 30.0}, "slow_ms and slow_factor have no effect without slow_worker"),
        ({"slow_worker": 1}, "slow_worker = 1 is not slower"),
        ({"slow_worker": 2, "slow_ms": 30.0}, "slow_worker = 2: must be 0 to 1"),
        ({"slow_worker": -1, "slow_factor": 2.0}, "slow_worker = -1: must be 0 to 1"),
        ({"slow_worker": 1, "slow_ms": -1.0}, "slow_ms = -1: must be 0 or more"),
        ({"slow_worker": 1, "slow_factor": 0.5}, "slow_factor = 0.5: must be 1 or more"),
        ({"slow_worker": 1, "slow_factor": float("nan")}, "slow_factor = nan: must be 1 or more"),
        ({"slow_worker": 1, "slow_ms": 30.0, "api": Api.FIT}, "slow_worker with api = fit"),
    ],
)
def test_a_straggler_without_effect_is_refused(values, message):
    with pytest.raises(TfdistError) as raised:
        check_straggler(TrainingSpec(**{**TWO, **values}))
    assert str(raised.value).startswith(message)


def test_in_one_process_the_replicas_are_counted():
    mirrored = {"strategy": StrategyName.MIRRORED, "devices": 2, "slow_ms": 30.0}
    check_straggler(TrainingSpec(**mirrored, slow_worker=1))
    with pytest.raises(TfdistError, match="one of 2"):
        check_straggler(TrainingSpec(**mirrored, slow_worker=2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"api": Api.FIT}, "step_times with api = fit"),
        ({"steps_per_call": 2}, "step_times with steps_per_call = 2"),
        ({"strategy": StrategyName.PARAMETER_SERVER, "ps": 1}, "step_times: parameter-server has no steps"),
        ({"strategy": StrategyName.TPU, "workers": 1}, "step_times: TensorFlow cannot read the clock"),
    ],
)
def test_step_times_without_a_loop_of_steps_are_refused(values, message):
    with pytest.raises(TfdistError) as raised:
        check_step_times(TrainingSpec(**{**TWO, "step_times": True, **values}))
    assert str(raised.value).startswith(message)
