"""What a task records about its process."""

import os

from tfdist.models.training import observation
from tfdist.strategies.options import Keras


def test_only_variables_that_change_speed_are_kept():
    kept = observation.environment(
        {"TF_CONFIG": "{}", "TF_NUM_INTEROP_THREADS": "2", "NCCL_ALGO": "Ring", "HOME": "/root", "TF_SECRET": "x"}
    )
    assert kept == {"TF_NUM_INTEROP_THREADS": "2", "NCCL_ALGO": "Ring"}


def test_software_names_the_keras_that_trains():
    assert observation.software(Keras.TWO)["keras"].startswith("tf_keras 2.")
    assert observation.software(Keras.THREE)["keras"].startswith("keras 3.")
    assert set(observation.software(Keras.TWO)) == {"tensorflow", "keras", "python", "tfdist", "numpy"}


def test_resource_usage_of_the_process():
    process = observation.process()
    assert set(process["affinity"]) == os.sched_getaffinity(0)
    assert process["peak_memory_bytes"] > 10e6
    assert observation.since_start() > 0
