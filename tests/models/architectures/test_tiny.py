"""The size of the tiny model."""

from dataclasses import replace

import pytest

from tfdist.models.spec import Architecture, TrainingSpec

SPEC = TrainingSpec(model=Architecture.TINY, image_size=32, classes=10)


@pytest.fixture(scope="module")
def tiny():
    from tfdist.models.architectures import tiny

    return tiny


def test_it_has_five_thousand_parameters_at_alpha_1_and_10_classes(tiny):
    assert round(tiny.build(SPEC).count_params(), -3) == 5000


def test_alpha_scales_it(tiny):
    assert tiny.build(replace(SPEC, alpha=0.5)).count_params() < tiny.build(SPEC).count_params() / 2
