import pytest

from tfdist.launch.incompatibilities import INCOMPATIBILITIES, hints

WRITTEN = {
    "ValueError: Attempt to convert a value (PerReplica:{\n  0: <tf.Tensor": "Keras 3's fit cannot convert",
    "ValueError: You must specify an aggregation method to update a MirroredVariable in Replica Context.": "aggregation",
    "InvalidArgumentError: No OpKernel was registered to support Op 'NcclAllReduce' used by {{node": "NCCL needs GPUs",
    "errors_impl.UnknownError: Could not start gRPC server": "another process listens",
    "Collective ops is aborted by: Shape mismatch in the collective instance 100. Op at": "different shapes",
    "TBNotInstalledError: TensorBoard is not installed, missing implementation for tf.summary.scalar": "tensorboard",
}


@pytest.mark.parametrize(("text", "hint"), WRITTEN.items(), ids=WRITTEN.values())
def test_what_tensorflow_writes_gets_one_hint(text, hint):
    (found,) = hints(text)
    assert hint in found


def test_every_incompatibility_is_tested_and_other_errors_get_no_hint():
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
