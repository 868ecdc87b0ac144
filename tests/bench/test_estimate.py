"""Estimates against the walls of the committed bench that they are calibrated on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from tfdist.bench.estimate import estimate_s, seconds_left
from tfdist.bench.plan import PlannedRun
from tfdist.bench.reading import read_folder
from tfdist.models.record import Record
from tfdist.models.spec import TrainingSpec

COMMITTED = Path(__file__).parents[2] / "bench_results" / "20261121T032905Z-cpu"
SPECS = {name: TrainingSpec(steps=30) for name in ("a", "b", "new")}


def test_estimates_are_close_to_the_committed_bench() -> None:
    walls: dict[str, list[float]] = {}
    specs: dict[str, TrainingSpec] = {}
    for record in read_folder(COMMITTED, "").records:
        walls.setdefault(record.arm, []).append(record.wall_s)
        specs[record.arm] = TrainingSpec.from_json(record.spec)
    for arm, spec in specs.items():
        assert estimate_s(spec) == pytest.approx(fmean(walls[arm]), rel=0.2), arm
    runs = [PlannedRun(number, arm) for number in (1, 2, 3) for arm in specs]
    assert seconds_left(runs, specs, ()) == pytest.approx(sum(map(sum, walls.values())), rel=0.05)


def test_a_longer_training_takes_longer() -> None:
    spec = TrainingSpec(steps=100)
    assert estimate_s(replace(spec, steps=200)) > estimate_s(spec) > estimate_s(replace(spec, image_size=96))
    assert estimate_s(replace(spec, workers=4)) > estimate_s(spec)


def test_the_time_left_is_what_each_arm_took_and_estimates_scaled_to_that(make_record: Callable[..., Record]) -> None:
    records = [replace(make_record("a"), wall_s=10.0), replace(make_record("b"), wall_s=30.0),
               replace(make_record("a", status="failed"), wall_s=1.0)]  # fmt: skip
    runs = [PlannedRun(2, "a"), PlannedRun(2, "b"), PlannedRun(2, "new")]
    assert seconds_left(runs, SPECS, records) == pytest.approx(10 + 30 + 20)
    assert seconds_left(runs, SPECS, ()) == pytest.approx(3 * estimate_s(SPECS["a"]))
    assert seconds_left([], SPECS, records) == 0


def test_without_a_measured_run_there_is_no_estimate_for_gpus(make_record: Callable[..., Record]) -> None:
    specs = {"a": TrainingSpec(gpus=True), "b": TrainingSpec(gpus=True)}
    runs = [PlannedRun(1, "a"), PlannedRun(1, "b")]
    assert seconds_left(runs, specs, ()) is None
    assert seconds_left(runs, specs, [replace(make_record("a"), wall_s=9.0)]) == pytest.approx(18)
