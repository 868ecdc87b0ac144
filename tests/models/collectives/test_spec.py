import pytest

from tfdist.models.collectives.spec import CollectiveOp, algbw, bus_factor


def test_the_gradients_of_mobilenet_in_20_ms_on_4_ranks():
    assert algbw(14.02e6, 0.020) == pytest.approx(0.701)
    assert algbw(14.02e6, 0.020) * bus_factor(CollectiveOp.ALL_REDUCE, 4) == pytest.approx(1.0515)


@pytest.mark.parametrize(
    ("op", "factor"),
    [
        (CollectiveOp.ALL_REDUCE, 1.75),
        (CollectiveOp.ALL_GATHER, 0.875),
        (CollectiveOp.BROADCAST, 1.0),
        (CollectiveOp.REDUCE, 1.0),
    ],
)
def test_factors_of_8_ranks_are_those_of_the_nccl_tests(op, factor):
    assert bus_factor(op, 8) == factor


def test_a_single_rank_exchanges_nothing():
    assert bus_factor(CollectiveOp.ALL_REDUCE, 1) == 0
