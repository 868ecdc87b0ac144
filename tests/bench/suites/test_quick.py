"""The suite quick: an answer in 3 minutes."""

import random
from collections.abc import Sequence
from dataclasses import replace
from math import exp
from typing import Any

import pytest

from tests.bench.conftest import record
from tests.bench.report.rows import verdict
from tfdist.bench.options import BenchOptions
from tfdist.bench.session import Session, prepare
from tfdist.bench.suites.suite import QUICK, load_suite
from tfdist.launch.machine import Machine, local_machines
from tfdist.models.record import Record
from tfdist.models.spec import TrainingSpec

TWO_CORES = Machine((0, 1), ())
RATES = {
    "one-device": 118.0, "independent": 214.0, "mirrored": 168.0, "multiworker": 165.0, "central-storage": 176.0,
    "parameter-server/1-ps": 116.0,
}  # fmt: skip
"""Recorded images/s of the suite cpu."""
STARTS_SD = 0.023
"""Standard deviation from start to start, as recorded: `noise.ASSUMED_SD`."""


def on(cores: int = 16, gpus: Sequence[str] = ()) -> Session:
    return prepare(BenchOptions(suite=QUICK), local_machines(Machine(tuple(range(cores)), tuple(gpus))))


@pytest.mark.parametrize(("cores", "gpus"), [(2, ""), (8, ""), (16, "AB"), (16, "ABCDEFGH")])
def test_all_arms_run_on_at_most_two_devices_in_the_preset_of_the_machine(cores: int, gpus: str) -> None:
    arms = on(cores, gpus).arms
    assert list(arms.specs) == list(RATES)
    assert not arms.refused
    assert not arms.warnings
    assert {spec.replicas for name, spec in arms.specs.items() if name != "one-device"} == {2}
    size = (224, 64) if gpus else (96, 16)
    for spec in arms.specs.values():
        assert isinstance(spec, TrainingSpec)
        assert (spec.image_size, spec.batch_size, spec.gpus, spec.evaluate) == (*size, bool(gpus), False)


def test_on_one_gpu_the_arms_of_two_are_refused_with_the_reason() -> None:
    arms = on(gpus="A").arms
    assert list(arms.specs) == ["one-device"]
    assert set(arms.refused) == RATES.keys() - {"one-device"}
    assert all("but only 1 GPU: use fewer --workers or --devices" in reason for reason in arms.refused.values())


def test_it_takes_less_than_three_minutes_on_two_cores() -> None:
    """With seconds left for the report."""
    assert prepare(BenchOptions(suite=QUICK), local_machines(TWO_CORES)).estimate_s < 170


def bench(seed: int, turns_sd: float) -> list[Record]:
    """The records of one bench of the suite, with noise between starts and between turns."""
    suite, draw = load_suite(QUICK), random.Random(seed)
    made = []
    for arm in suite.arms:
        spec: dict[str, Any] = {key: arm.choices[key] for key in ("workers", "devices", "ps") if key in arm.choices}
        tasks = ["chief-0"] if "ps" in spec else [f"worker-{index}" for index in range(spec.get("workers", 1))]
        per_task = 120 if len(tasks) == 2 else 240
        spec |= {"strategy": arm.choices["strategy"], "tasks": tasks, "examples": per_task}
        for start in range(suite.incarnations):
            luck = draw.gauss(0, STARTS_SD)
            for number in range(3 * start + 1, 3 * start + 4):
                seconds = 240 / RATES[arm.name] * exp(luck + draw.gauss(0, turns_sd))
                turn = record(arm.name, [[seconds]] * len(tasks), round=number, **spec)
                made.append(replace(turn, incarnation=start + 1))
    return made


@pytest.mark.parametrize("turns_sd", [0.03, 0.06])
def test_two_starts_of_three_rounds_say_what_to_use_and_what_is_slower_for_sure(turns_sd: float) -> None:
    """On a quiet and on a noisy machine: an arm is named as one to use or as slower, none is left out."""
    for seed in range(4):
        found = verdict(bench(seed, turns_sd))
        use, _, slower = found.advice.partition(" Slower for sure: ")
        assert use.startswith("Use ")
        assert "central-storage" in use
        assert " times one device, " in use
        assert slower.startswith("parameter-server") or " and parameter-server" in slower
        assert all(name in found.advice for name in ("mirrored", "multiworker"))
        assert ("The slowest of them may be up to " in use) == (" or " in use.partition(":")[0])
        assert found.certainty.startswith("Sure to within ")
        assert found.within < 0.3
