"""What is looked at before TensorFlow asks for a TPU. Not run on hardware."""

import pytest

from tfdist.launch.errors import TfdistError

tpu = pytest.importorskip("tfdist.strategies.tpu")


def test_a_named_tpu_comes_first(tmp_path):
    (tmp_path / "accel0").touch()
    assert tpu.address({"TPU_NAME": "pod"}, tmp_path) == "pod"


@pytest.mark.parametrize("device", ["accel0", "vfio/0"])
def test_a_tpu_vm_is_known_by_its_devices(device, tmp_path):
    (tmp_path / device).parent.mkdir(exist_ok=True)
    (tmp_path / device).touch()
    assert tpu.address({}, tmp_path) == "local"


def test_no_tpu_is_said_in_one_sentence(tmp_path):
    with pytest.raises(TfdistError, match="no TPU here"):
        tpu.address({"TPU_NAME": ""}, tmp_path)
