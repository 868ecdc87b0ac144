"""A training with `--set ema` is evaluated with its averages, whatever runs its steps."""

from dataclasses import replace

import pytest

from tfdist.strategies.options import Api, Keras, Precision, StrategyName

from .training import MOBILE, TINY, train_all

pytestmark = pytest.mark.thorough


def test_every_kind_of_training_keeps_them(tmp_path):
    """Averages that hardly leave the initial weights classify badly what the trained weights classify well."""
    learned = replace(TINY, steps=300, batch_size=32, learning_rate=0.005, evaluate=True)
    batch_norm = replace(MOBILE, steps=200, batch_size=32, ema=0.98, evaluate=True)
    specs = [replace(learned, ema=None), replace(learned, ema=0.5), batch_norm]
    specs += [
        replace(learned, ema=0.9999, api=Api.FIT, keras=Keras.THREE, strategy=StrategyName.MIRRORED, devices=2),
        replace(learned, ema=0.9999, keras=Keras.THREE, steps_per_call=2, strategy=StrategyName.MIRRORED, devices=2),
        replace(learned, ema=0.9999, api=Api.FIT, strategy=StrategyName.PARAMETER_SERVER, workers=2, ps=2),
        replace(TINY, ema=0.9, precision=Precision.MIXED_FLOAT16, strategy=StrategyName.MIRRORED, devices=2),
        replace(TINY, ema=0.9, precision=Precision.MIXED_BFLOAT16, strategy=StrategyName.INDEPENDENT, workers=2),
    ]
    weights, half, mobile, *rest = (ranks[0].accuracy for ranks in train_all(specs, tmp_path))
    assert min(weights, half) > 0.6
    assert mobile > 0.4  # 0.58 to 0.75, by the instructions of the processor
    assert max(rest[:3]) < 0.35
    assert rest[3:] == [None, None]
