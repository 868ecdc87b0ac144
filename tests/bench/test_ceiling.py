"""The most images/s that the network allows."""

from dataclasses import replace

import pytest

from tests.bench.collectives.lines import line, sweep
from tfdist.bench.ceiling import ceiling, exchange_of, highest_ceiling, network_limit
from tfdist.bench.statistics import Interval
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import Communication, Keras, StrategyName

SPEC = TrainingSpec(StrategyName.MULTI_WORKER, workers=4, batch_size=16, communication=Communication.RING)
LINK = {"bytes_per_s": 125e6, "rtt_s": 0.001}
ROUNDS = (1, 2, 3)


def test_a_ring_of_4_hosts_at_1_gigabit():
    exchange = exchange_of(SPEC, 4, None, LINK)
    assert exchange.floor_s == pytest.approx(1.5 * 14_019_488 / 125e6)  # 168 ms
    assert network_limit(SPEC, exchange) == pytest.approx(64 / 0.16823, rel=1e-4)
    assert ceiling(SPEC, exchange, 160.0) == pytest.approx(64 / (0.16823 + 0.1), rel=1e-4)


@pytest.mark.parametrize("change", [{"bytes_per_pack": 1 << 20}, {"keras": Keras.THREE}])
def test_an_all_reduce_that_can_overlap_with_computing_costs_only_what_is_longer(change):
    spec = replace(SPEC, **change)
    exchange = exchange_of(spec, 4, None, LINK)
    assert ceiling(spec, exchange, 160.0) == pytest.approx(64 / 0.16823, rel=1e-4)
    assert ceiling(spec, exchange, 40.0) == pytest.approx(64 / 0.4)


def test_the_sweep_counts_more_than_the_link_with_its_highest_bus_bandwidth():
    lines = [line(size=size, seconds=seconds, ranks=4, hosts=4, round=n)
             for n in ROUNDS for size, seconds in ((1 << 10, 1e-3), (1 << 20, 0.02), (1 << 24, 0.5))]  # fmt: skip
    exchange = exchange_of(SPEC, 4, sweep(*lines), LINK)
    assert exchange.bandwidth.bytes_per_s == pytest.approx(1.5 * (1 << 20) / 0.02)
    assert exchange.bandwidth.source == "the highest bus bandwidth of multiworker/ring, 4 ranks"


def test_an_all_reduce_with_wrong_sums_is_no_measurement():
    lines = [line(size=size, seconds=seconds, ranks=4, hosts=4, round=n, wrong=wrong)
             for n in ROUNDS for size, seconds, wrong in ((1 << 20, 0.02, 0), (1 << 24, 1e-3, 7))]  # fmt: skip
    assert exchange_of(SPEC, 4, sweep(*lines), LINK).bandwidth.bytes_per_s == pytest.approx(1.5 * (1 << 20) / 0.02)


def test_a_sweep_of_smaller_sizes_only_is_no_upper_limit():
    exchange = exchange_of(SPEC, 4, sweep(*(line(size=1 << 20, ranks=4, hosts=4, round=n) for n in ROUNDS)), LINK)
    assert exchange.bandwidth.source.endswith("4 ranks, measured only up to 1M")
    assert highest_ceiling(SPEC, exchange, None, 160.0) == pytest.approx(4 * 160.0)


def test_ranks_of_the_same_number_come_before_others():
    lines = [line(ranks=ranks, seconds=0.01 * ranks, hosts=2, round=n) for n in ROUNDS for ranks in (2, 4)]
    assert "4 ranks" in exchange_of(SPEC, 2, sweep(*lines), {}).bandwidth.source
    assert "2 ranks" in exchange_of(replace(SPEC, workers=3), 2, sweep(*lines), {}).bandwidth.source


def test_a_sweep_on_another_number_of_hosts_says_nothing():
    assert exchange_of(SPEC, 2, sweep(line(hosts=1)), {}) is None
    assert exchange_of(SPEC, 2, sweep(line(hosts=1)), LINK).bandwidth.source.startswith("one TCP stream")


@pytest.mark.parametrize(
    "change", [{"strategy": StrategyName.MIRRORED}, {"strategy": StrategyName.INDEPENDENT}, {"workers": 1}]
)
def test_only_trainings_between_processes_have_a_ceiling(change):
    assert exchange_of(replace(SPEC, **change), 2, None, LINK) is None


def test_processes_of_one_host_without_a_sweep_have_no_ceiling():
    assert exchange_of(SPEC, 1, None, {}) is None


def test_the_highest_ceiling_holds_the_uncertainty_of_both_measurements():
    lines = [
        line(seconds=seconds, ranks=4, hosts=4, round=n)
        for n, seconds in zip(ROUNDS, (0.01, 0.011, 0.012), strict=True)
    ]
    exchange = exchange_of(SPEC, 4, sweep(*lines), {})
    highest = highest_ceiling(SPEC, exchange, Interval(150.0, 170.0, 0.95), 160.0)
    assert highest > ceiling(SPEC, exchange, 170.0) > ceiling(SPEC, exchange, 160.0)
