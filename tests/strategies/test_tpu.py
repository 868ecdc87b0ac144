"""What is looked at before TensorFlow asks for a TPU. Not run on hardware."""

import pytest

from tfdist.cli.strategies import here
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine
from tfdist.strategies.catalog import CATALOG, TPU_DEVICES, StrategyName

tpu = pytest.importorskip("tfdist.strategies.tpu")


def test_a_named_tpu_comes_first(tmp_path):
    (tmp_path / "accel0").touch()
    assert tpu.address({"TPU_NAME": "pod"}, tmp_path) == "pod"


@pytest.mark.parametrize("device", TPU_DEVICES)
def test_a_tpu_vm_is_known_by_its_devices(device, tmp_path):
    (tmp_path / device).parent.mkdir(exist_ok=True)
    (tmp_path / device).touch()
    assert tpu.address({}, tmp_path) == "local"


@pytest.mark.parametrize("device", TPU_DEVICES)
def test_the_table_of_strategies_looks_for_the_same_devices(device, tmp_path, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    row, machine = CATALOG[StrategyName.TPU], Machine((0,), ())
    missing = here(row, machine, tmp_path)
    assert missing.startswith("no (")
    assert device in missing
    (tmp_path / device).parent.mkdir(exist_ok=True)
    (tmp_path / device).touch()
    assert here(row, machine, tmp_path) == "yes"


def test_no_tpu_is_said_in_one_sentence(tmp_path):
    with pytest.raises(TfdistError, match=r"no TPU here \(no /dev/accel0, no /dev/vfio/0, no TPU_NAME\)"):
        tpu.address({"TPU_NAME": ""}, tmp_path)
