"""A training on real digits reaches its accuracy."""

from dataclasses import replace
from statistics import median

import pytest

from tfdist.strategies.options import StrategyName

from .training import MOBILE, losses, train

SPEC = replace(MOBILE, strategy=StrategyName.MULTI_WORKER, workers=2, batch_size=32, steps=600, evaluate=True)


@pytest.mark.thorough
def test_held_out_digits_are_classified(tmp_path):
    for rank in train(replace(SPEC, steps_per_window=50, warmup_steps=50), tmp_path, timeout_s=800.0):
        assert rank.accuracy is not None
        assert rank.accuracy > 0.9
        assert median(losses(rank)[-5:]) < 0.3 < losses(rank)[0]  # of a batch each, one of which may be hard
