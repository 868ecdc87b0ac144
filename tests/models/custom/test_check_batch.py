from types import SimpleNamespace

import numpy as np
import pytest

from tfdist.launch.errors import TfdistError
from tfdist.models.custom.part import JobPart
from tfdist.models.custom.steps import check_batch

ALONE = JobPart()
OF_TWO = JobPart("worker-1", 1, 2)


class Tensor:
    def __init__(self, *shape):
        self.array = np.arange(np.prod(shape)).reshape(shape)
        self.shape = self.array.shape

    def numpy(self):
        return self.array


class Unreadable(Tensor):
    def numpy(self):
        raise TypeError("cannot convert a tensor of cuda:0 to numpy")


def replicas(*tensors):
    return SimpleNamespace(values=tensors)


@pytest.mark.parametrize(
    ("part", "replicas_", "examples", "batch"),
    [
        (ALONE, 1, 32, (Tensor(32, 4), Tensor(32))),
        (ALONE, 2, 32, (replicas(Tensor(16, 4), Tensor(16, 4)), None)),
        (OF_TWO, 2, 32, {"x": Tensor(16, 4)}),
        (OF_TWO, 4, 32, [replicas(Tensor(8), Tensor(8))]),
        (ALONE, 2, 32 * 128, Tensor(32, 128)),  # tokens
        (ALONE, 2, 32, 7),  # of range(N)
        (ALONE, 2, 32, Tensor()),
        (ALONE, 2, 32, SimpleNamespace(values=lambda: ())),  # of UserDict
        (ALONE, 2, 32, SimpleNamespace(values=Tensor(64))),  # of a sparse tensor
        (ALONE, 2, 32, Unreadable(64)),
    ],
)
def test_a_batch_of_as_many_examples_as_it_says_is_right(part, replicas_, examples, batch):
    check_batch(part, replicas_, examples, batch)


@pytest.mark.parametrize(
    ("part", "replicas_", "examples", "batch", "found"),
    [
        (OF_TWO, 2, 32, Tensor(32, 4), 64),
        (OF_TWO, 2, 32, Tensor(8, 4), 16),
        (ALONE, 2, 32, replicas(Tensor(32), Tensor(32)), 64),
        (ALONE, 2, 32, replicas(Tensor(8), Tensor(8)), 16),
    ],
)
def test_a_global_batch_in_place_of_a_replicas_is_refused(part, replicas_, examples, batch, found):
    with pytest.raises(TfdistError, match=f"examples=32, but the batches of all replicas together have {found}"):
        check_batch(part, replicas_, examples, batch)
