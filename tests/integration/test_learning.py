"""Real digits are really learnt."""

from dataclasses import replace

import pytest

from tfdist.strategies.catalog import StrategyName

from .training import MOBILE, losses, train


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [{"strategy": StrategyName.ONE_DEVICE}, {"strategy": StrategyName.MULTI_WORKER, "workers": 2}],
    ids=lambda how: str(how["strategy"]),
)
def test_held_out_digits_are_recognised(how, tmp_path):
    spec = replace(
        MOBILE,
        **how,
        batch_size=32,
        steps=1200,
        steps_per_window=50,
        warmup_steps=50,
        evaluate=True,
        cores_per_device=None,
    )
    for rank in train(spec, tmp_path):
        assert rank.accuracy is not None
        assert rank.accuracy > 0.9
        assert losses(rank)[-1] < 0.3 < losses(rank)[0]
