"""The search for a TPU before TensorFlow connects to it. Not run on hardware."""

import pytest

from tfdist.cli.strategies import availability
from tfdist.launch.errors import TfdistError
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName

tpu = pytest.importorskip("tfdist.strategies.tpu")
ROW = CATALOG[StrategyName.TPU]


def test_a_named_tpu_comes_first(tmp_path):
    (tmp_path / "accel0").touch()
    assert tpu.address({"TPU_NAME": "pod"}, tmp_path) == "pod"


@pytest.mark.parametrize("device", ROW.device_files)
def test_a_tpu_vm_is_recognised_by_its_device_files(device, tmp_path):
    (tmp_path / device).parent.mkdir(exist_ok=True)
    (tmp_path / device).touch()
    assert tpu.address({}, tmp_path) == "local"


@pytest.mark.parametrize("device", ROW.device_files)
def test_tfdist_strategies_checks_the_same_device_files(device, tmp_path, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    missing = availability(ROW, tmp_path)
    assert missing.startswith("no (")
    assert device in missing
    (tmp_path / device).parent.mkdir(exist_ok=True)
    (tmp_path / device).touch()
    assert availability(ROW, tmp_path) == "yes"


def test_a_missing_tpu_is_refused(tmp_path):
    with pytest.raises(TfdistError, match=r"no TPU here \(no /dev/accel0, no /dev/vfio/0, no TPU_NAME\)"):
        tpu.address({"TPU_NAME": ""}, tmp_path)
