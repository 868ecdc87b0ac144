import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.collectives.spec import (
    MOST_ITERATIONS,
    CollectiveOp,
    CollectiveSpec,
    SizeCase,
    algbw,
    bus_factor,
    cases_of,
    iterations_for,
    shuffled,
)
from tfdist.strategies.options import GradientDtype, StrategyName


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


def spec(**values):
    return CollectiveSpec(StrategyName.MULTI_WORKER, workers=3, **values)


def test_sizes_are_whole_elements_and_measured_once():
    assert cases_of(spec(sizes=(1, 4, 1025, 1027)), ()) == (SizeCase((1,), 4), SizeCase((256,), 1024))


def test_the_size_of_an_all_gather_is_that_of_its_result():
    assert cases_of(spec(op=CollectiveOp.ALL_GATHER, sizes=(1024,)), ()) == (SizeCase((85,), 1020),)


def test_smaller_types_have_more_elements_in_the_same_bytes():
    assert cases_of(spec(sizes=(1024,), gradient_dtype=GradientDtype.BFLOAT16), ()) == (SizeCase((512,), 1024),)


def test_gradients_are_one_case_for_each_pack_size():
    assert cases_of(spec(pack_sizes=(0, 100)), (5, 7)) == (SizeCase((5, 7), 48, 0), SizeCase((5, 7), 48, 100))


def test_pack_sizes_mean_nothing_without_gradients():
    assert cases_of(spec(sizes=(4,), pack_sizes=(0, 100)), ()) == (SizeCase((1,), 4),)


def test_every_rank_has_the_same_order_and_each_turn_another():
    cases = cases_of(spec(sizes=tuple(2**n for n in range(10, 29))), ())
    assert shuffled(cases, 7, 1) == shuffled(cases, 7, 1) != shuffled(cases, 7, 2)
    assert sorted(shuffled(cases, 7, 1), key=lambda case: case.bytes) == list(cases)


@given(st.floats(0, 1e6), st.floats(1e-9, 1e6))
def test_a_sample_has_at_least_one_operation_and_lasts_long_enough(seconds, operation_s):
    number = iterations_for(seconds, operation_s)
    assert 1 <= number <= MOST_ITERATIONS
    assert number * operation_s >= seconds * (1 - 1e-9) or number == MOST_ITERATIONS


@given(
    st.builds(
        CollectiveSpec,
        sizes=st.lists(st.integers(1, 1 << 60)).map(tuple),
        pack_sizes=st.lists(st.integers(0, 1 << 60)).map(tuple),
    )
)
def test_a_task_receives_the_spec_that_was_planned(planned):
    assert CollectiveSpec.from_env(planned.to_env()) == planned
