import numpy as np
import pytest

from tfdist.models.collectives.exchange import own_values, period, wrong_elements
from tfdist.models.collectives.spec import CollectiveOp


def contributions(elements, ranks, tensor=0, dtype=np.float32):
    return [own_values(elements, rank, ranks, tensor, dtype) for rank in range(ranks)]


RIGHT = {
    CollectiveOp.ALL_REDUCE: lambda own: np.sum(own, axis=0),
    CollectiveOp.REDUCE: lambda own: np.sum(own, axis=0),
    CollectiveOp.ALL_GATHER: np.concatenate,
    CollectiveOp.BROADCAST: lambda own: own[0],
}


@pytest.mark.parametrize("op", CollectiveOp)
@pytest.mark.parametrize("ranks", [1, 2, 3, 64, 200])
@pytest.mark.parametrize("elements", [1, 7, 1000])
def test_right_results_have_no_wrong_element(op, ranks, elements):
    assert wrong_elements(op, RIGHT[op](contributions(elements, ranks, 5)), elements, ranks, 5) == 0


@pytest.mark.parametrize("op", CollectiveOp)
def test_each_planted_wrong_element_is_counted(op):
    result = np.array(RIGHT[op](contributions(3_000_001, 3)))
    result[[0, 5, 1_500_000, 3_000_000]] += 1
    assert wrong_elements(op, result, 3_000_001, 3, 0) == 4


def test_not_a_number_is_wrong():
    result = np.sum(contributions(10, 2), axis=0)
    result[3] = np.nan
    assert wrong_elements(CollectiveOp.ALL_REDUCE, result, 10, 2, 0) == 1


def test_a_rank_that_was_dropped_is_noticed():
    own = contributions(800, 3)
    assert wrong_elements(CollectiveOp.ALL_REDUCE, own[0] + own[1], 800, 3, 0) == 700  # the rest of its values are 0


def test_tensors_that_were_exchanged_for_each_other_are_noticed():
    result = np.sum(contributions(800, 2, tensor=1), axis=0)
    assert wrong_elements(CollectiveOp.ALL_REDUCE, result, 800, 2, 0) > 400


def test_a_result_of_another_length_is_wrong_as_a_whole():
    assert wrong_elements(CollectiveOp.ALL_GATHER, np.zeros(9), 10, 2, 0) == 20


@pytest.mark.parametrize("ranks", [2, 32, 100, 250])
def test_sums_are_exact_in_bfloat16(ranks):
    assert (period(ranks) - 1) * ranks <= 256
    assert period(ranks) >= 2
