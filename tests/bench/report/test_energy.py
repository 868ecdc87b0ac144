"""Known answers of energy and cost."""

import pytest

from tfdist.bench.report.energy import cost_per_million, images_per_joule, joules
from tfdist.models.record import GpuReading, RankRecord, Window, WindowUsage


def gpu(index, energy_j, power_w=200.0):
    return GpuReading(index, 1, 1.0, power_w, energy_j, 1410, "")


def rank(*windows, host="h1", task="worker-0"):
    usages = [WindowUsage(0.0, 0.0, 0.0, 0, tuple(gpus)) for gpus in windows]
    return RankRecord(task, host, 1, (), tuple(Window(5, 320, 0.5, 1.0, usage) for usage in usages), {}, 0, 0)


def test_the_counters_of_all_windows_and_gpus_are_added():
    assert joules([rank([gpu(0, 100.0), gpu(1, 50.0)], [gpu(0, 110.0), gpu(1, 60.0)])]) == 320.0


def test_without_a_counter_power_times_time_counts():
    assert joules([rank([gpu(0, None)], [gpu(0, None, 300.0)])]) == 250.0


def test_a_gpu_that_ranks_share_counts_once_but_each_host_has_its_own():
    shared = [rank([gpu(0, 100.0)], task=f"worker-{index}") for index in range(2)]
    assert joules(shared) == 100.0
    assert joules([rank([gpu(0, 100.0)]), rank([gpu(0, 70.0)], host="h2", task="worker-1")]) == 170.0


@pytest.mark.parametrize("ranks", [[], [rank()], [rank([])], [rank([gpu(0, 1.0)]), rank([gpu(0, 1.0)], [])]])
def test_without_readings_in_every_window_the_energy_is_unknown(ranks):
    assert joules(ranks) is None


def test_images_per_joule_and_cost():
    assert images_per_joule(640, 320.0) == 2.0
    assert cost_per_million(3.6, 1000.0) == pytest.approx(1.0)
    assert cost_per_million(32.77, 10_000.0) == pytest.approx(0.910, abs=1e-3)
