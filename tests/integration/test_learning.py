"""A training on real digits reaches its accuracy."""

from dataclasses import replace
from statistics import median

import pytest

from tfdist.strategies.options import StrategyName

from .training import MOBILE, losses, train

EXAMPLES = 38_400
SPEC = replace(MOBILE, batch_size=32, steps_per_window=50, warmup_steps=50, evaluate=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "how",
    [
        {"strategy": StrategyName.ONE_DEVICE, "cores_per_device": 2},
        {"strategy": StrategyName.MULTI_WORKER, "workers": 2},
    ],
    ids=lambda how: str(how["strategy"]),
)
def test_held_out_digits_are_classified(how, tmp_path):
    """One device processes as many examples in 1,200 steps as two workers in 600."""
    spec = replace(SPEC, **how)
    spec = replace(spec, steps=EXAMPLES // spec.global_batch_size)
    for rank in train(spec, tmp_path, timeout_s=800.0):
        assert rank.accuracy is not None
        assert rank.accuracy > 0.9
        assert median(losses(rank)[-5:]) < 0.3 < losses(rank)[0]  # of a batch each, one of which may be hard
