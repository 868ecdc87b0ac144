"""What a task records about its process, its libraries and its GPUs."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from tfdist.models.training import observation
from tfdist.models.training.readings import OpenGpus
from tfdist.models.training.windows import WindowLog
from tfdist.strategies.options import Keras


def test_only_variables_that_change_speed_are_kept():
    kept = observation.environment(
        {"TF_CONFIG": "{}", "TF_NUM_INTEROP_THREADS": "2", "NCCL_ALGO": "Ring", "HOME": "/root", "TF_SECRET": "x"}
    )
    assert kept == {"TF_NUM_INTEROP_THREADS": "2", "NCCL_ALGO": "Ring"}


@pytest.mark.parametrize("folder", ['"/a \\"b c"', "'/a b'", "/a"])
def test_the_folder_of_xla_programs_is_not_recorded(folder):
    flags = f"--tf_xla_auto_jit=2 --tf_xla_persistent_cache_directory={folder} --tf_xla_min_cluster_size=3"
    kept = observation.environment({"TF_XLA_FLAGS": flags})
    assert kept == {"TF_XLA_FLAGS": "--tf_xla_auto_jit=2 --tf_xla_min_cluster_size=3"}


def test_software_names_the_keras_that_trains():
    assert observation.software(Keras.TWO)["tensorflow"] == tf.__version__
    assert observation.software(Keras.TWO)["keras"].startswith("tf_keras 2.")
    assert observation.software(Keras.THREE)["keras"].startswith("keras 3.")
    assert set(observation.software(Keras.TWO)) == {"tensorflow", "keras", "python", "tfdist", "numpy"}


def test_the_software_of_another_framework_imports_no_tensorflow():
    program = (
        "import sys, types; sys.modules['torch'] = types.SimpleNamespace(__name__='torch', __version__='2.9')\n"
        "from tfdist.models.training import observation\nfrom tfdist.strategies.options import Keras\n"
        "found = observation.process(Keras.THREE)['software']\n"
        "assert (found['torch'], 'tensorflow' in found, 'tensorflow' in sys.modules) == ('2.9', False, False), found"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_resource_usage_of_the_process():
    process = observation.process(Keras.TWO, ["/job:localhost/replica:0/task:0/device:CPU:0"])
    assert set(process["affinity"]) == os.sched_getaffinity(0)
    assert process["peak_memory_bytes"] > 10e6
    assert process["gpu_peak_bytes"] == ()
    assert observation.since_start() > 0


def test_the_first_step_ends_after_its_trace():
    log = WindowLog(clock=lambda: 28.0, opened_at=18.0, first_step_at=25.0)
    phases = observation.first_step_phases(log)
    assert phases["trace"] == 7.0
    assert phases["first_step_end"] == pytest.approx(observation.since_start() - 3.0, abs=1.0)


@pytest.fixture
def gpu(monkeypatch):
    """Lets TensorFlow see a GPU."""
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])


def test_without_a_gpu_there_is_nothing_to_add():
    assert observation.gpu_software() == {}


def test_versions_are_those_of_the_wheels_or_of_the_build(gpu, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: {"cuda_version": "12.5.1"})
    wheels = {"nvidia-cudnn-cu12": "9.28.0.42", "nvidia-nccl-cu12": "2.32.3", "nvidia-ml-py": "13.6"}
    monkeypatch.setattr(observation, "_version", lambda wheel: wheels.get(wheel, ""))
    monkeypatch.setattr(observation, "read_text", lambda path: "570.86\n")
    monkeypatch.setattr(observation, "open_gpus", lambda: OpenGpus(note="nvidia-ml-py is not installed"))
    found = observation.gpu_software()
    assert found == {
        "cuda": "built with 12.5.1", "cudnn": "9.28.0.42", "nccl": "2.32.3",
        "driver": "570.86", "tf32": "on", "nvidia-ml-py": "nvidia-ml-py is not installed",
    }  # fmt: skip
    monkeypatch.setattr(observation, "open_gpus", lambda: OpenGpus())
    assert observation.gpu_software()["nvidia-ml-py"] == "13.6"
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: {})  # as in TensorFlow 2.22
    assert observation.gpu_software()["cuda"] == "unknown"


def test_peak_memory_is_that_of_each_gpu(gpu, monkeypatch):
    import tensorflow as tf

    peaks = {"/device:GPU:0": 5, "/device:GPU:1": 7}
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", lambda device: {"peak": peaks[device]})
    assert observation.peak_gpu_memory(["/device:GPU:0", "/device:GPU:1", "/device:CPU:0"]) == (5, 7)
