"""What a task says of itself."""

import os

from tfdist.models.training import observation
from tfdist.strategies.catalog import Keras


def test_only_variables_that_change_speed_are_kept():
    kept = observation.environment(
        {"TF_CONFIG": "{}", "TF_NUM_INTEROP_THREADS": "2", "NCCL_ALGO": "Ring", "HOME": "/root", "TF_SECRET": "x"}
    )
    assert kept == {"TF_NUM_INTEROP_THREADS": "2", "NCCL_ALGO": "Ring"}


def test_software_names_the_keras_that_trains():
    assert observation.software(Keras.TWO)["keras"].startswith("tf_keras 2.")
    assert observation.software(Keras.THREE)["keras"].startswith("keras 3.")
    assert set(observation.software(Keras.TWO)) == {"tensorflow", "keras", "python", "tfdist", "numpy"}


def test_the_process_is_seen():
    seen = observation.process()
    assert set(seen["affinity"]) == os.sched_getaffinity(0)
    assert seen["peak_memory_bytes"] > 10e6
    assert observation.since_start() > 0
