"""Which lines of a task say nothing to its user."""

import os
import subprocess
import sys

import pytest

from tfdist.launch.tensorflow_output import INCOMPATIBILITIES, NoiseFilter, hints

WRITTEN = {
    "ValueError: Attempt to convert a value (PerReplica:{\n  0: <tf.Tensor": "Keras 3's fit cannot convert",
    "ValueError: You must specify an aggregation method to update a MirroredVariable in Replica Context.": "aggregation",
    "InvalidArgumentError: No OpKernel was registered to support Op 'NcclAllReduce' used by {{node": "NCCL needs GPUs",
    "errors_impl.UnknownError: Could not start gRPC server": "another process listens",
    "Collective ops is aborted by: Shape mismatch in the collective instance 100. Op at": "different shapes",
    "tensorflow.python.framework.errors_impl.FailedPreconditionError: {{node MergeV2Checkpoints}} "
    "MergeV2Checkpoints failed: ckpt-1_temp": "TFDIST_ARM_DIR",
    "BlockingIOError: [Errno 11] Unable to synchronously create file (unable to lock file, errno = 11)": "same checkpoint",
    "ValueError: To use this dataset, you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset.": (
        "create_per_worker_dataset, as examples/custom_loop.py does"
    ),
    "TBNotInstalledError: TensorBoard is not installed, missing implementation for tf.summary.scalar": "tensorboard",
    "KeyError: 'SLURM_PROCID'": "SlurmClusterResolver",
    "ImportError: googleapiclient must be installed before using the GCE cluster resolver": "Google Cloud or Kubernetes",
    "KeyError: 'LOCAL_RANK'": "torchrun",
    "ModuleNotFoundError: No module named 'horovod'": "docs/migrate.md",
}


@pytest.mark.parametrize(("text", "hint"), WRITTEN.items(), ids=WRITTEN.values())
def test_what_tensorflow_writes_gets_one_hint(text, hint):
    (found,) = hints(text)
    assert hint in found


@pytest.mark.slow
def test_what_programs_of_other_launchers_write_gets_a_hint():
    """The real messages of TensorFlow, Python and their modules."""
    program = """
import os, traceback
import tensorflow as tf
resolvers = tf.distribute.cluster_resolver
for ask in (
    lambda: resolvers.SlurmClusterResolver(),
    lambda: resolvers.GCEClusterResolver("project", "zone", "group", 1),
    lambda: resolvers.KubernetesClusterResolver({"worker": ["job-name=worker"]}).cluster_spec(),
    lambda: os.environ["RANK"],
    lambda: __import__("horovod.tensorflow"),
):
    try:
        ask()
    except Exception:
        print("---", traceback.format_exc(), sep="\\n")
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "RANK"))}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    _, *errors = done.stdout.split("---\n")
    found = [hints(error) for error in errors]
    whats = ["asks Slurm", "asks Google Cloud", "asks Google Cloud", "torchrun", "Horovod"]
    assert [what in hint[0] for hint, what in zip(found, whats, strict=True)] == [True] * 5


def test_with_keras_3_chosen_import_keras_is_not_called_the_cause():
    (found,) = hints("ValueError: Attempt to convert a value (PerReplica:{", keras3=True)
    assert "'import keras'" not in found
    assert found.endswith(": choose Keras 2 with --keras 2, and use tf.keras, or a custom training loop")


def test_every_incompatibility_is_tested_and_other_errors_get_no_hint():
    assert hints("BlockingIOError: [Errno 11] write could not complete without blocking") == ()
    assert len({hints(text) for text in WRITTEN}) == len(INCOMPATIBILITIES)
    assert hints("ValueError: bad data") == ()


@pytest.mark.parametrize(
    ("packages", "shown"),
    [
        ({"keras": "3.15.1"}, 1),
        ({"keras": "3.15.1", "tf_keras": "2.21.0"}, 0),
        ({"keras": "2.15.0"}, 0),
        ({}, 0),
    ],
)
def test_a_host_with_keras_3_alone_shows_what_will_fail(packages, shown):
    assert sum(each.shows_in(packages) for each in INCOMPATIBILITIES) == shown


OPTIONS = """\
I0000 00:00:1795284709.595145   15639 eager_service_impl.cc:355] SessionOptions: goo.gle/debugstr
device_count {
  key: "CPU"
  value: 1
}
gpu_options {
  experimental {
  }
}
allow_soft_placement: true
experimental {
  collective_group_leader: "/job:ps/replica:0/task:0"
}

"""


def test_the_session_options_of_a_server_are_noise_up_to_the_first_line_that_is_none():
    text = f"before\n{OPTIONS}the server is up\n}}\n  key: value\n"
    assert NoiseFilter().keep(text.splitlines()) == ["before", "the server is up", "}", "  key: value"]


def test_braces_and_indented_lines_elsewhere_are_kept():
    text = "model {\n  key: 1\n}\n\nI0000 00:00:1795284709.595145   15639 port.cc:153] oneDNN\n}"
    assert NoiseFilter().keep(text.splitlines()) == ["model {", "  key: 1", "}", "", "}"]


def test_a_block_of_options_may_arrive_in_pieces():
    noise = NoiseFilter()
    assert [line for line in (OPTIONS + "up\n").splitlines() if noise.keep([line])] == ["up"]


CU_INIT = """\
E0000 00:00:1795546311.316910    5102 cuda_platform.cc:57] failed call to cuInit: INTERNAL: CUDA error: Failed call
=== Source Location Trace: ===
external/xla/xla/stream_executor/cuda/cuda_status.cc:50

"""


def test_the_source_locations_that_follow_a_missing_gpu_are_noise_up_to_an_empty_line():
    text = f"{CU_INIT}model.cc:7: warning\n\nmodel.cc:8\n"
    assert NoiseFilter().keep(text.splitlines()) == ["model.cc:7: warning", "", "model.cc:8"]


def test_placed_operations_are_noise_on_both_streams():
    place = "step/Adam/update: (ResourceApplyAdam): /job:ps/replica:0/task:0/device:CPU:0"
    logged = f"I0000 00:00:1795330612.428841    2636 placer.cc:162] {place}"
    for line in (place, logged):
        assert NoiseFilter().keep([line]) == []
        assert NoiseFilter().keep(["a result", line]) == ["a result"]
    kept = ["see (this): /job:ps is down", "model: (tiny): trained"]
    assert NoiseFilter().keep(kept) == kept
