"""Every strategy computes the same loss from the same examples."""

from dataclasses import replace

import pytest

from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import Api, CrossDevice, Keras, StrategyName

from .training import MOBILE, TINY, losses, train_all

pytestmark = pytest.mark.thorough
FIVE = {"steps": 5, "steps_per_window": 1, "warmup_steps": 1}
TWO_REPLICAS = (
    {"strategy": StrategyName.MIRRORED, "devices": 2},
    {"strategy": StrategyName.MULTI_WORKER, "workers": 2},
    {"strategy": StrategyName.CENTRAL_STORAGE, "devices": 2},
)


def loss_after_five_steps(specs: list[TrainingSpec], folder) -> list[float]:
    """The loss of each training, equal on all its ranks."""
    result = []
    for ranks in train_all(specs, folder):
        last = {losses(rank)[-1] for rank in ranks}
        assert len(last) == 1
        result.append(last.pop())
    return result


def test_mobilenet_v2_on_two_replicas(tmp_path):
    mirrored, *others = loss_after_five_steps([replace(MOBILE, **FIVE, **how) for how in TWO_REPLICAS], tmp_path)
    assert others == pytest.approx([mirrored] * 2, rel=1e-3)


def test_one_device_computes_the_loss_of_two_replicas(tmp_path):
    """Gradients are averaged, not summed: how a global batch is split does not matter."""
    base = replace(TINY, **FIVE, learning_rate=0.01)
    specs = [replace(base, batch_size=2 * base.batch_size), replace(base, batch_size=3 * base.batch_size)]
    specs += [replace(base, **how) for how in TWO_REPLICAS]
    specs += [
        replace(base, **TWO_REPLICAS[0], cross_device=CrossDevice.REDUCTION_TO_ONE),
        replace(base, **TWO_REPLICAS[0], cross_device=CrossDevice.HIERARCHICAL_COPY, packs=2),
    ]
    one, larger, *others = loss_after_five_steps(specs, tmp_path)
    assert others == pytest.approx([one] * len(others), rel=1e-4)
    assert larger != pytest.approx(one, rel=1e-4)  # the tolerance above is tight enough


def test_fit_computes_the_loss_of_the_loop(tmp_path):
    """A window of one step, so that fit's mean over the window is the step's loss. Keras 3 draws other weights.

    The warm-up is a call of fit of its own, and the timed windows continue the data.
    """
    fit = replace(TINY, **FIVE, api=Api.FIT)
    mirrored = replace(fit, **TWO_REPLICAS[0])
    specs = [replace(mirrored, api=Api.LOOP), mirrored, replace(fit, **TWO_REPLICAS[1])]
    specs += [replace(mirrored, api=api, keras=Keras.THREE) for api in Api]
    loop, *fits, loop3, fit3 = loss_after_five_steps(specs, tmp_path)
    assert fits == pytest.approx([loop] * 2, rel=1e-4)
    assert fit3 == pytest.approx(loop3, rel=1e-4)


def test_several_steps_in_a_call_are_the_same_steps(tmp_path):
    """Windows of 4 and 4 steps, each one call; with 3 steps in a call, windows of 6 and 2."""
    base = replace(TINY, steps=8, steps_per_window=4, warmup_steps=0, learning_rate=0.01)
    specs = [replace(base, **TWO_REPLICAS[0])]
    specs += [replace(base, **how, steps_per_call=4) for how in TWO_REPLICAS]
    specs += [replace(base, **TWO_REPLICAS[0], steps_per_call=3)]
    one, *others, uneven = (losses(ranks[0]) for ranks in train_all(specs, tmp_path))
    assert len(one) == 2
    assert others == [pytest.approx(one, rel=1e-6)] * 3
    assert uneven[-1] == pytest.approx(one[-1], rel=1e-6)


def test_several_steps_in_a_closure_are_all_counted(tmp_path):
    spec = replace(TINY, strategy=StrategyName.PARAMETER_SERVER, workers=2, ps=1, steps=20, steps_per_window=4)
    for (rank,) in train_all([replace(spec, steps_per_call=n) for n in (1, 4)], tmp_path):
        assert rank.updates_applied == 20
        assert rank.examples_applied == 20 * spec.batch_size


def test_fit_trains_several_steps_in_a_call(tmp_path):
    fit = replace(TINY, api=Api.FIT, steps=8, steps_per_window=4, warmup_steps=0, shuffle=1)
    specs = [replace(fit, **TWO_REPLICAS[0], steps_per_call=n) for n in (1, 4)]
    one, four = (losses(ranks[0]) for ranks in train_all(specs, tmp_path))
    assert len(one) == 2
    assert four == pytest.approx(one, rel=1e-4)
