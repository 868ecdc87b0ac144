import random
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.record import Record
from tfdist.models.throughput import examples_per_step, exchange, measuring_ranks, throughput, window_step_ms
from tfdist.strategies.catalog import Exchange

from .conftest import record

seconds = st.floats(0.001, 100.0)
sync_jobs = st.integers(1, 6).flatmap(
    lambda windows: st.lists(st.lists(seconds, min_size=windows, max_size=windows), min_size=1, max_size=4)
)


def multiworker(times: list[list[float]]) -> Record:
    return record("arm", times, strategy="multiworker", workers=len(times))


def test_throughput_is_examples_over_elapsed_and_never_a_mean_of_rates() -> None:
    measured = record("arm", [[0.1, 0.1, 0.1, 0.7]], examples=10)
    assert throughput(measured) == pytest.approx(40.0)
    assert fmean(10 / t for t in (0.1, 0.1, 0.1, 0.7)) == pytest.approx(78.57, abs=0.01)  # what it must not be


def test_a_synchronous_window_costs_what_its_slowest_rank_took() -> None:
    # slowest: 0.3, then 0.4; 2 ranks x 2 windows x 10 examples
    assert throughput(multiworker([[0.3, 0.1], [0.2, 0.4]])) == pytest.approx(40 / 0.7)


def test_a_rank_that_waits_while_another_is_between_epochs_costs_nothing() -> None:
    job = multiworker([[0.3, 0.1], [2.3, 0.1]])
    first, waiting = job.ranks
    away = replace(first.windows[0], epochs=1, between_s=2.0)
    both = replace(job, ranks=(replace(first, windows=(away, first.windows[1])), waiting))
    assert throughput(both) == pytest.approx(40 / 0.4)
    assert window_step_ms(both) == pytest.approx((300, 100))


def test_asynchronous_counts_what_the_chief_saw_applied() -> None:
    job = record("arm", [[0.5, 0.5], [9.0, 9.0]], strategy="parameter-server", workers=2, ps=1, examples=20,
                 tasks=["chief-0", "worker-0"])  # fmt: skip
    assert throughput(job) == pytest.approx(40 / 1.0)


def test_independent_trainings_are_counted_until_the_first_is_through() -> None:
    # worker-0 is through after 0.3 s; worker-1 has then done its first window, and half of the second
    job = record("arm", [[0.1, 0.2], [0.2, 0.2]], strategy="independent", workers=2)
    assert throughput(job) == pytest.approx(35 / 0.3)
    assert window_step_ms(job) == pytest.approx((100, 200, 200, 200))


def test_independent_trainings_may_differ_in_their_number_of_windows() -> None:
    # until 0.4 s: two windows, two windows, one and half a one; worker-1 continues alone
    job = record("arm", [[0.2, 0.2], [0.1, 0.3, 0.1, 0.1], [0.3, 0.2]], strategy="independent", workers=3)
    assert throughput(job) == pytest.approx(55 / 0.4)
    assert window_step_ms(job) == pytest.approx((100, 200, 300, 200, 300, 200))


@given(st.lists(st.lists(seconds, min_size=1, max_size=5), min_size=1, max_size=4))
def test_independent_trainings_side_by_side_are_at_most_the_sum_of_their_fastest_windows(
    times: list[list[float]],
) -> None:
    rate = throughput(record("arm", times, strategy="independent", workers=len(times)))
    slowest, fastest = (sum(10 / edge(row) for row in times) for edge in (max, min))
    assert slowest * 0.999999 <= rate <= fastest * 1.000001


def test_an_independent_training_without_a_window_leaves_no_throughput() -> None:
    with pytest.raises(ValueError, match="no timed window"):
        throughput(record("arm", [[0.1], []], strategy="independent", workers=2))


@pytest.mark.parametrize("times", [[[]], [[], []], [[0.1, 0.1], [0.1]]])
def test_without_whole_windows_there_is_no_throughput(times: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"window|shorter|longer"):
        throughput(multiworker(times))


def test_which_strategies_exchange_how() -> None:
    assert exchange({"strategy": "multiworker"}) is Exchange.SYNC
    assert exchange({"strategy": "one-device"}) is Exchange.SYNC
    assert exchange({"strategy": "parameter-server"}) is Exchange.ASYNC
    assert exchange({"strategy": "independent"}) is Exchange.NONE


@given(sync_jobs)
def test_no_job_is_faster_than_its_fastest_window(times: list[list[float]]) -> None:
    fastest = max(10 * len(times) / max(row) for row in zip(*times, strict=True))
    slowest = min(10 * len(times) / max(row) for row in zip(*times, strict=True))
    assert slowest * 0.999999 <= throughput(multiworker(times)) <= fastest * 1.000001


@given(sync_jobs, st.randoms())
def test_the_order_of_windows_and_of_ranks_does_not_matter(times: list[list[float]], draw: random.Random) -> None:
    columns = list(zip(*times, strict=True))
    draw.shuffle(columns)
    shuffled = [list(rank) for rank in zip(*columns, strict=True)]
    draw.shuffle(shuffled)
    assert throughput(multiworker(shuffled)) == pytest.approx(throughput(multiworker(times)))


@given(sync_jobs)
def test_a_mean_of_rates_would_be_at_least_as_high(times: list[list[float]]) -> None:
    rates = [10 * len(times) / max(row) for row in zip(*times, strict=True)]
    assert throughput(multiworker(times)) <= fmean(rates) * 1.000001


def test_step_times_are_the_slowest_ranks_per_step() -> None:
    assert window_step_ms(multiworker([[0.3, 0.1], [0.2, 0.4]])) == pytest.approx((300, 400))
    job = record("arm", [[0.3], [0.2]], strategy="independent", workers=2)
    assert window_step_ms(job) == pytest.approx((200, 300))


def test_an_asynchronous_step_of_all_devices_is_one_of_each_worker() -> None:
    job = record("arm", [[0.2, 0.3]], strategy="parameter-server", workers=4, ps=1, tasks=["chief-0"])
    assert window_step_ms(job) == pytest.approx((800, 1200))


def test_asynchronous_workers_without_a_chief_are_counted_side_by_side() -> None:
    job = record("arm", [[0.1, 0.2], [0.2, 0.2]], strategy="parameter-server", workers=2, ps=1)
    assert throughput(job) == pytest.approx(35 / 0.3)
    assert window_step_ms(job) == pytest.approx((100, 200, 200, 200))
    assert measuring_ranks(job) == job.ranks
    assert examples_per_step(job) == 20


def test_a_window_in_which_nothing_was_applied_has_no_step_time() -> None:
    job = record("arm", [[0.2, 0.1, 0.4]], strategy="parameter-server", workers=2, ps=1, tasks=["chief-0"])
    first, second, third = job.ranks[0].windows
    chief = replace(job.ranks[0], windows=(first, replace(second, steps=0, examples=0), third))
    assert window_step_ms(replace(job, ranks=(chief,))) == pytest.approx((400, 800))
