import math

import pytest

from lab.faults.soak import PARTS, undisturbed
from lab.faults.soak_page import Soaked, problems


@pytest.mark.thorough
def test_the_accuracy_of_a_run_is_read(tmp_path):
    (accuracy,) = undisturbed(20, tmp_path, seeds=1)
    assert 0.0 < accuracy < 1.0


def test_a_run_without_an_accuracy_is_a_problem():
    soaked = Soaked(PARTS[1], 100, code=0, accuracy=0.7)
    assert "an undisturbed run gave no accuracy" in problems(soaked, [0.7, math.nan, 0.7])
    assert "accuracy 0.7, undisturbed 0.900, 0.910, 0.920" in problems(soaked, [0.9, 0.91, 0.92])
