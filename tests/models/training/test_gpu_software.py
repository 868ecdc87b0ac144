import pytest

from tfdist.models.training.readings import OpenGpus


@pytest.fixture
def gpu_software(monkeypatch):
    import tensorflow as tf

    from tfdist.models.training import gpu_software

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    return gpu_software


def test_without_a_gpu_there_is_nothing_to_add():
    from tfdist.models.training.gpu_software import gpu_software, peak_gpu_memory

    assert gpu_software() == {}
    assert peak_gpu_memory(["/job:localhost/replica:0/task:0/device:CPU:0"]) == ()


def test_versions_are_those_of_the_wheels_or_of_the_build(gpu_software, monkeypatch):
    import tensorflow as tf

    wheels = {"nvidia-cudnn-cu12": "9.28.0.42", "nvidia-nccl-cu12": "2.32.3", "nvidia-ml-py": "13.6"}
    monkeypatch.setattr(gpu_software, "_version", lambda wheel: wheels.get(wheel, ""))
    monkeypatch.setattr(gpu_software, "read_text", lambda path: "570.86\n")
    monkeypatch.setattr(gpu_software, "open_gpus", lambda: OpenGpus(note="nvidia-ml-py is not installed"))
    found = gpu_software.gpu_software()
    assert found == {
        "cuda": f"built with {tf.sysconfig.get_build_info()['cuda_version']}", "cudnn": "9.28.0.42", "nccl": "2.32.3",
        "driver": "570.86", "tf32": "on", "nvidia-ml-py": "nvidia-ml-py is not installed",
    }  # fmt: skip
    monkeypatch.setattr(gpu_software, "open_gpus", lambda: OpenGpus())
    assert gpu_software.gpu_software()["nvidia-ml-py"] == "13.6"


def test_peak_memory_is_that_of_each_gpu(gpu_software, monkeypatch):
    import tensorflow as tf

    peaks = {"/device:GPU:0": 5, "/device:GPU:1": 7}
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", lambda device: {"peak": peaks[device]})
    assert gpu_software.peak_gpu_memory(["/device:GPU:0", "/device:GPU:1", "/device:CPU:0"]) == (5, 7)
