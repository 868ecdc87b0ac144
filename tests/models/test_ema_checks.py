"""The decay of moving averages."""

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.models.ema_checks import check_ema, ema_warnings
from tfdist.models.spec import TrainingSpec


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_a_decay_outside_of_0_to_1_is_refused(decay):
    with pytest.raises(TfdistError, match=r"--ema .*: must be more than 0 and less than 1"):
        check_ema(TrainingSpec(ema=decay))


def test_a_training_that_is_too_short_for_its_averages_gets_a_warning():
    assert check_ema(TrainingSpec(ema=0.999)) is None
    (text,) = ema_warnings(TrainingSpec(ema=0.999, steps=500, evaluate=True))
    assert text.startswith("--ema 0.999: after 500 steps the averages are 61% initial weights")
    assert ema_warnings(TrainingSpec(ema=0.999, steps=5000, evaluate=True)) == ()
    assert ema_warnings(TrainingSpec(ema=0.999, steps=500)) == ()
    assert ema_warnings(TrainingSpec(steps=5, evaluate=True)) == ()
