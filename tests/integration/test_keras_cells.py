"""Every cell of strategy, Keras and API: what is said to work runs, with BatchNorm, and the rest is refused."""

from dataclasses import replace

import pytest

from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import Api, CrossDevice, Keras, StrategyName
from tfdist.strategies.refusals import keras_refusal

from .training import TINY, train_all

BASE = replace(TINY, model="tiny_bn", steps=4)
ROWS = {
    "one device": {"strategy": StrategyName.ONE_DEVICE},
    "mirrored": {"strategy": StrategyName.MIRRORED, "devices": 2},
    "mirrored, hierarchical": {
        "strategy": StrategyName.MIRRORED,
        "devices": 2,
        "cross_device": CrossDevice.HIERARCHICAL_COPY,
    },
    "mirrored, to one": {
        "strategy": StrategyName.MIRRORED,
        "devices": 2,
        "cross_device": CrossDevice.REDUCTION_TO_ONE,
    },
    "multiworker": {"strategy": StrategyName.MULTI_WORKER, "workers": 2},
    "central storage": {"strategy": StrategyName.CENTRAL_STORAGE, "devices": 2},
    "parameter server": {"strategy": StrategyName.PARAMETER_SERVER, "workers": 1, "ps": 1},
}
FAILS = {
    ("multiworker", Keras.THREE, Api.FIT),
    ("central storage", Keras.THREE, Api.FIT),
    ("central storage", Keras.THREE, Api.LOOP),
    ("parameter server", Keras.THREE, Api.FIT),
    ("parameter server", Keras.THREE, Api.LOOP),
}
CELLS = {
    (row, keras, api): replace(BASE, keras=keras, api=api, **values)
    for row, values in ROWS.items()
    for keras in Keras
    for api in Api
}


def refusal(spec: TrainingSpec):
    return keras_refusal(spec.strategy, spec.cross_device, spec.keras, spec.api)


@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_exactly_what_fails_is_refused(cell):
    said = refusal(CELLS[cell])
    assert (said is not None) == (cell in FAILS)
    if said is not None:
        assert "--keras 2" in said.instead


@pytest.mark.slow
def test_what_is_not_refused_trains(tmp_path):
    specs = [spec for cell, spec in CELLS.items() if cell not in FAILS]
    for spec, ranks in zip(specs, train_all(specs, tmp_path), strict=True):
        assert all(rank.updates_applied == spec.steps for rank in ranks), spec
        assert all(
            rank.software["keras"].split()[0] == ("tf_keras" if spec.keras is Keras.TWO else "keras") for rank in ranks
        )
