from typing import Any

import numpy as np
import pytest

from tests.bench.conftest import record
from tfdist.bench.predict.compute import compute_for
from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.models.record import Record

STEPS, WINDOWS, ROUNDS = 3, 6, 40


def rows(spread: float, between: float) -> list[ArmRow]:
    """Two devices side by side: steps that differ, and devices that differ from turn to turn; one device is faster."""
    draw = np.random.default_rng(0)
    records, order = [], 0
    for number in range(1, ROUNDS + 1):
        slower = 0.1 * np.exp(between * draw.standard_normal(2))
        steps = np.exp(spread * draw.standard_normal((2, WINDOWS, STEPS))) * slower[:, None, None]
        times = steps.mean(axis=2).tolist()
        for arm, workers, each in (
            ("one-device", 1, [[0.08] * WINDOWS]),
            ("independent", 2, times),
            ("multiworker/ring", 2, times),
        ):
            order += 1
            windows = [[STEPS * value for value in rank] for rank in each]
            made = record(arm, windows, round=number, strategy=arm.partition("/")[0], workers=workers, order=order,
                          examples=10 * STEPS)  # fmt: skip
            for rank in made.ranks:
                for window in rank.windows:
                    object.__setattr__(window, "steps", STEPS)
            records.append(made)
    return list(summarize([ResultFolder("", None, tuple(records), (), ())]))


@pytest.mark.parametrize(("spread", "between"), [(0.1, 0.0), (0.0, 0.05), (0.1, 0.05), (0.05, 0.1)])
def test_the_spread_is_that_of_a_step_and_of_a_device(spread: float, between: float) -> None:
    made = rows(spread, between)
    found = compute_for(next(row for row in made if row.arm == "multiworker/ring"), made)
    assert found.spread == pytest.approx((spread**2 + between**2) ** 0.5, rel=0.2)


def test_times_are_of_the_most_devices_that_were_measured() -> None:
    made = rows(0.0, 0.0)
    found = compute_for(next(row for row in made if row.arm == "multiworker/ring"), made)
    assert [each.devices for each in found.times] == [1, 2]
    assert [found.at(number).seconds for number in (1, 2, 64)] == pytest.approx([0.08, 0.1, 0.1])


def on_hosts(arm: str, strategy: str, hosts: int, seconds: float, **spec: Any) -> list[Record]:
    """Two devices on this number of hosts; for one device, one."""
    workers = 1 if strategy == "one-device" else 2
    boxes = ["h1", f"h{hosts}"][:workers]
    times = [[seconds] * 2] * workers
    return [
        record(arm, times, round=number, strategy=strategy, workers=workers, hosts=boxes, order=number, **spec)
        for number in (1, 2, 3)
    ]


def test_trainings_side_by_side_are_those_on_as_many_hosts() -> None:
    """Two processes of one host share its memory; on a host of its own each is faster."""
    records = [
        *on_hosts("one-device", "one-device", 1, 0.08),
        *on_hosts("independent/1-host", "independent", 1, 0.12),
        *on_hosts("independent/2-hosts", "independent", 2, 0.09),
        *on_hosts("multiworker/2-hosts", "multiworker", 2, 0.15),
        *on_hosts("multiworker/1-host", "multiworker", 1, 0.15),
    ]
    made = {row.arm: row for row in summarize([ResultFolder("", None, tuple(records), (), ())])}
    for arm, seconds in (("multiworker/2-hosts", 0.09), ("multiworker/1-host", 0.12)):
        assert compute_for(made[arm], list(made.values())).at(2).seconds == pytest.approx(seconds)


def test_workers_that_were_slowed_down_count_for_arms_that_were_too() -> None:
    slow = {"slow_worker": 1, "slow_factor": 2.0}
    records = [
        *on_hosts("one-device", "one-device", 1, 0.08),
        *on_hosts("independent/steady", "independent", 1, 0.1),
        *on_hosts("independent/2x", "independent", 1, 0.2, **slow),
        *on_hosts("multiworker/steady", "multiworker", 1, 0.15),
        *on_hosts("multiworker/2x", "multiworker", 1, 0.25, **slow),
    ]
    made = {row.arm: row for row in summarize([ResultFolder("", None, tuple(records), (), ())])}
    for arm, seconds in (("multiworker/steady", 0.1), ("multiworker/2x", 0.2)):
        assert compute_for(made[arm], list(made.values())).at(2).seconds == pytest.approx(seconds)
