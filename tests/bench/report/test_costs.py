from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tfdist.bench.report.costs import joules
from tfdist.bench.report.sections.results import costs_section
from tfdist.bench.report.summary import ArmRow, ReportData, summarize
from tfdist.models.record import GpuReading, HostUsage, RankRecord, Record, Window, WindowUsage

from .rows import folder, four, rows_of, timed


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


def test_the_slowest_process_decides_and_each_start_counts_once() -> None:
    made = record("a", [[0.1], [0.1]], strategy="multiworker", workers=2)
    slow = replace(made.ranks[1], phases_s={**made.ranks[1].phases_s, "trace": 8.0})
    first = [replace(made, round=n, incarnation=1, ranks=(made.ranks[0], slow)) for n in (1, 2, 3)]
    costs = rows_of([*first, replace(made, round=4, incarnation=2)])["a"].costs
    phases = [costs[f"start_{phase}_s"] for phase in ("import", "strategy", "build", "trace", "first_step_end")]
    assert phases == [4.0, 0.0, 1.0, 5.0, 7.0]


def test_cpu_seconds_count_servers_too() -> None:
    usage = HostUsage(10.0, 2, {"chief-0": 1.0, "worker-0": 9.0, "worker-1": 8.0, "ps-0": 2.0}, 20.0, 0.0)
    made = record("ps", [[0.1]], strategy="parameter-server", workers=2, ps=1, tasks=["chief-0"])
    costs = rows_of([replace(made, hosts_usage=(usage,))])["ps"].costs
    assert costs["cpu_cores"] == pytest.approx(2.0)
    assert costs["cpu_cores_parameter_servers"] == pytest.approx(0.2)


def test_percentiles_are_of_all_windows() -> None:
    assert step_ms(rows_of(timed("a", *(n / 1000 for n in range(1, 102))))["a"]) == pytest.approx([51.0, 96.0, 100.0])
    assert step_ms(rows_of(timed("a", 0.1))["a"]) == pytest.approx([100.0] * 3)


def step_ms(row: ArmRow) -> list[float]:
    return [row.costs[f"step_ms_{name}"] for name in ("p50", "p95", "p99")]


def with_usage(made: Record, resident: int, *gpus: GpuReading) -> Record:
    usage = WindowUsage(1.0, 1.0, 0.0, resident, gpus)
    windows = tuple(replace(window, usage=usage) for window in made.ranks[0].windows)
    return replace(made, order=made.round, ranks=(replace(made.ranks[0], windows=windows),))


def test_memory_is_that_at_the_last_window() -> None:
    turns = [with_usage(made, size) for made, size in zip(four("a"), (900, 700, 750, 800), strict=True)]
    assert rows_of(turns)["a"].costs["memory_largest_process_mb"] == pytest.approx(800e-6)
    assert rows_of(four("a"))["a"].costs["memory_largest_process_mb"] is None


def test_gpus_are_columns_only_where_there_are_some() -> None:
    plain = summarize([folder(four("a"))])
    (shown,) = costs_section(ReportData((), plain)).tables[0].rows
    assert not any("GPU" in name or "joule" in name for name in shown)
    reading = GpuReading(0, 3_000_000_000, 0.9, 200.0, 20.0, 1400, "power cap")
    row = rows_of([with_usage(made, 1, reading) for made in four("a", gpus=True)])["a"]
    values = row.costs
    assert values["gpu_power_w"] == pytest.approx(200.0)  # 20 J in each window of 0.1 s
    assert values["images_per_joule"] == pytest.approx(0.5)
    assert (values["gpu_memory_mb"], values["gpu_utilization"]) == (3000, 0.9)
    assert costs_section(ReportData((), (row,))).tables[0].rows[0]["GPU throttling"] == "power cap"


def test_nothing_measured_is_no_table() -> None:
    assert costs_section(ReportData((), summarize([folder([record(status="failed", reason="x")])]))) is None


def test_costs_of_windows_without_steps() -> None:
    made = record("ps", [[0.1]], strategy="parameter-server", workers=1, ps=1, tasks=["chief-0"])
    idle = replace(made.ranks[0], windows=(*made.ranks[0].windows, Window(0, 0, 0.5, None)))
    assert step_ms(rows_of([replace(made, ranks=(idle,))])["ps"]) == pytest.approx([100.0] * 3)
