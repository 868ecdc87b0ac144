"""The section on stragglers, from records whose steps take known times."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tests.bench.report.rows import folder
from tfdist.bench.report.section import Section
from tfdist.bench.report.sections.stragglers import straggler_section
from tfdist.bench.report.summary import ReportData, summarize
from tfdist.models.record import Record

SLOW = {"slow_worker": 1, "slow_factor": 3.0}
NOISE = (1.0, 1.01, 0.99, 1.0)


def arm(
    name: str, strategy: str, seconds: Sequence[float], slow: bool, updates: object = None, **more: object
) -> list[Record]:
    """A turn of a window of one step for each value of NOISE; `seconds` of each rank."""
    spec: dict[str, object] = {"strategy": strategy, "workers": 2, **(SLOW if slow else {})}
    if strategy == "parameter-server":
        spec |= {"ps": 1, "tasks": ["chief-0"]}
    spec |= more
    records = [
        record(name, [[each * noise] for each in seconds], round=number, **spec)
        for number, noise in enumerate(NOISE, start=1)
    ]
    observed = {"chief-0": {"updates": updates}} if updates else {}
    return [replace(one, observed=observed) for one in records]


def alone() -> list[Record]:
    """10 examples a step: the slow worker's takes 0.1 s longer."""
    steady = arm("independent", "independent", (0.05, 0.05), slow=False)
    return [*steady, *arm("independent/3x", "independent", (0.05, 0.15), slow=True)]


def section_of(records: Sequence[Record]) -> Section | None:
    folders = (folder(records),)
    return straggler_section(ReportData(folders, summarize(folders)))


@pytest.fixture
def section() -> Section:
    sync = [*arm("sync", "multiworker", (0.1, 0.1), False), *arm("sync/3x", "multiworker", (0.2, 0.2), True)]
    # of 10 examples in 0.05 s: each worker takes 0.1 s; then one worker does half of its steps
    counts = [[50, 50], [10, 20, 20]]
    asynchronous = [
        *arm("async", "parameter-server", (0.05,), False),
        *arm("async/3x", "parameter-server", (0.05 / 0.75,), True, counts),
    ]
    found = section_of([*alone(), *sync, *asynchronous])
    assert found is not None
    return found


def test_without_a_slow_worker_there_is_no_section():
    assert section_of(arm("sync", "multiworker", (0.1, 0.1), False)) is None
    assert section_of(arm("sync/3x", "multiworker", (0.1, 0.1), True)) is None, "nothing to compare with"


def test_what_waiting_would_leave_follows_from_the_slow_step_alone(section):
    values = section.tables[0].data.set_index("arm")
    sync = values.loc["sync/3x"]
    assert sync.share_left == pytest.approx(0.5)
    assert sync.share_if_all_waited == pytest.approx(0.1 / 0.2, rel=1e-3), "0.1 s longer, as alone"
    assert sync.share_if_none_waited == pytest.approx(0.75, rel=1e-3)
    assert sync.slow_step_measured_in == "independent/3x"
    other = values.loc["async/3x"]
    assert other.share_left == pytest.approx(0.75)
    assert other.share_if_all_waited == pytest.approx(0.5, rel=1e-3)
    assert other.slow_worker_share == pytest.approx(1 / 3)
    assert other.slow_worker_staleness_mean == pytest.approx(1.2)


def test_both_claims_hold_up(section):
    sync, asynchronous = section.answer
    assert sync.startswith(
        '"Synchronous training goes at the pace of the slowest worker": held up. sync/3x kept 0.50 ('
    )
    assert sync.split("; ")[1].startswith("waiting would leave 0.50, not waiting 0.75")
    assert asynchronous.startswith('"Asynchronous training does not wait for the slowest worker": held up. async/3x')
    assert "on cores that its processes share" in sync


def test_without_trainings_alone_the_factor_says_how_slow(section):
    sync = [*arm("sync", "multiworker", (0.1, 0.1), False), *arm("sync/3x", "multiworker", (0.2, 0.2), True)]
    found = section_of(sync)
    assert found is not None
    values = found.tables[0].data.loc[0]
    assert (values.share_if_all_waited, values.slow_step_measured_in) == (pytest.approx(1 / 3), "")


def test_the_chart_can_be_drawn(section):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    (chart,) = section.charts
    chart.paint(axes)
    assert "sync/3x 0.50" in chart.alt
    labels = axes.get_legend_handles_labels()[1]
    assert {"multiworker", "parameter-server", "independent"} <= set(labels)


def test_a_backup_worker_has_a_claim_and_a_line_of_its_own():
    """10 examples of each of three workers, or of the two that a step waits for: a step takes 0.1 s."""
    how = {"workers": 3, "ps": 1, "tasks": ["chief-0"], "sync": True, "examples": 30}
    backup = {**how, "backup_workers": 1, "examples": 20}
    found = section_of(
        [
            *arm("sync", "between-graph", (0.1,), False, **how),
            *arm("sync/3x", "between-graph", (0.3,), True, **how),
            *arm("backup", "between-graph", (0.1,), False, **backup),
            *arm("backup/3x", "between-graph", (0.1,), True, **backup),
        ]
    )
    assert found is not None
    sync, with_backup = found.answer
    assert sync.startswith('"Synchronous training goes at the pace of the slowest worker": held up. sync/3x kept 0.33')
    assert with_backup.startswith(
        '"With a backup worker, synchronous training does not wait for the slowest one": held up. backup/3x kept 1.00'
    )
    assert found.tables[0].data.set_index("arm").loc["backup/3x"].share_if_all_waited == pytest.approx(1 / 3)

    from matplotlib.figure import Figure

    axes = Figure().subplots()
    found.charts[0].paint(axes)
    labels = set(axes.get_legend_handles_labels()[1])
    assert {"between-graph --sync", "between-graph --sync --set backup_workers=1"} <= labels


def test_milliseconds_make_a_worker_slow_too():
    """10 examples of each worker in 0.1 s; 30 ms more are a share of 1/1.3 if all wait."""
    by_30 = {"slow_factor": 1.0, "slow_ms": 30.0}
    arms = [*arm("sync", "multiworker", (0.1, 0.1), False), *arm("sync/30", "multiworker", (0.13, 0.13), True, **by_30)]
    found = section_of(arms)
    assert found is not None
    (claim,) = found.answer
    assert "with a worker slowed by 30 ms a step; waiting would leave 0.77, not waiting 0.88" in claim
    assert [row["slowed"] for row in found.tables[0].rows] == ["30 ms"]
    steady = arm("independent", "independent", (0.05, 0.05), slow=False)
    other = arm("independent/60", "independent", (0.05, 0.11), True, slow_factor=1.0, slow_ms=60.0)
    again = section_of([*arms, *steady, *other])
    assert again is not None
    assert again.tables[0].data.set_index("arm").loc["sync/30"].slow_step_measured_in == "", "another slowness"
    assert section_of([*arms[:4], *arm("none", "multiworker", (0.1, 0.1), True, slow_factor=1.0)]) is None


def test_an_arm_is_compared_with_the_same_work_only():
    """With a batch of 20, a slow step takes 0.2 s longer when it trains alone, with one of 10 0.1 s longer."""
    arms = [*alone(), *arm("sync", "multiworker", (0.1, 0.1), False), *arm("sync/3x", "multiworker", (0.2, 0.2), True)]
    for name, slow in (("large", False), ("large/3x", True)):
        seconds = (0.4, 0.4) if slow else (0.2, 0.2)
        arms += arm(name, "multiworker", seconds, slow, batch_size=20, examples=20)
    found = section_of(arms)
    assert found is not None
    values = found.tables[0].data.set_index("arm")
    assert values.loc["sync/3x"].slow_step_measured_in == "independent/3x"
    assert values.loc["large/3x"].slow_step_measured_in == ""
    assert values.loc["large/3x"].share_left == pytest.approx(0.5)

    from matplotlib.figure import Figure

    axes = Figure().subplots()
    found.charts[0].paint(axes)
    assert {"sync", "large", "independent"} <= set(axes.get_legend_handles_labels()[1])


def test_the_slow_worker_is_found_by_its_number():
    """As text, worker-10 precedes worker-2."""
    many = {"workers": 11, "slow_worker": 2}
    steady = arm("independent", "independent", (0.05,) * 11, slow=False, workers=11)
    slow = arm("independent/3x", "independent", (0.05, 0.05, 0.15, *(0.05,) * 8), slow=True, **many)
    found = section_of([*steady, *slow])
    assert found is not None
    assert found.tables[0].data.loc[0].share_if_all_waited == pytest.approx(0.05 / 0.15, rel=1e-3)
