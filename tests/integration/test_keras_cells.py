"""Every combination of strategy, Keras and API either trains a model with BatchNorm, or is refused and would fail."""

from dataclasses import replace
from pathlib import Path

import pytest

from tfdist.launch.tensorflow_output import hints
from tfdist.models.record import RecordStatus
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import keras_refusal
from tfdist.strategies.options import Api, Keras, StrategyName

from .training import TINY, attempt, train_all

BASE = replace(TINY, steps=4)
SCRIPT = Path(__file__).with_name("train_tiny_bn.py")
ROWS = {
    "one device": {"strategy": StrategyName.ONE_DEVICE},
    "mirrored": {"strategy": StrategyName.MIRRORED, "devices": 2},
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
    return keras_refusal(spec.strategy, spec.keras, spec.api)


@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_exactly_the_failing_combinations_are_refused(cell):
    result = refusal(CELLS[cell])
    assert (result is not None) == (cell in FAILS)
    if result is not None:
        assert "--keras 2" in result.instead


@pytest.mark.thorough
def test_every_other_combination_trains(tmp_path):
    specs = [spec for cell, spec in CELLS.items() if cell not in FAILS]
    for spec, ranks in zip(specs, train_all(specs, tmp_path, SCRIPT), strict=True):
        assert all(rank.updates_applied == spec.steps for rank in ranks), spec
        assert all(
            rank.software["keras"].split()[0] == ("tf_keras" if spec.keras is Keras.TWO else "keras") for rank in ranks
        )


LOSES_UPDATES = ("parameter server", Keras.THREE, Api.LOOP)


@pytest.mark.thorough
@pytest.mark.parametrize("cell", sorted(FAILS - {LOSES_UPDATES}), ids="-".join)
def test_a_refused_combination_fails_with_a_known_error(cell, tmp_path):
    """If it trains with the installed TensorFlow and Keras, the catalog refuses too much."""
    record = attempt(CELLS[cell], tmp_path / "run", script=SCRIPT)
    assert record.status is not RecordStatus.OK
    assert any(hints(log.read_text()) for log in tmp_path.rglob("stderr.log")), record.reason


@pytest.mark.thorough
def test_keras_3_loses_updates_of_the_workers_of_a_parameter_server(tmp_path):
    spec = replace(CELLS[LOSES_UPDATES], workers=2, steps=200, steps_per_window=200, cores_per_device=None)
    (chief,) = attempt(spec, tmp_path / "run", script=SCRIPT).ranks
    assert chief.updates_applied < spec.steps
