import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.conftest import record
from tfdist.bench.folder import BenchFile
from tfdist.bench.plan import interleave
from tfdist.bench.report.enough import how_to_measure_enough
from tfdist.bench.suites.suite import Suite, load_suite, narrow

from .rows import folder

ROOT = Path("bench results") / "one"


def bench_of(suite: Suite) -> BenchFile:
    plan = interleave([arm.name for arm in suite.arms], suite.rounds, suite.seed)
    return BenchFile(suite, "tfdist bench", "", plan)


@pytest.mark.parametrize("gpus", [False, True])
def test_smoke_names_the_suite_that_answers_soon(gpus: bool) -> None:
    two = {"strategy": "mirrored", "devices": 2}
    records = [record(gpus=gpus), record("mirrored/auto", gpus=gpus, **two)]  # type: ignore[arg-type]
    text = how_to_measure_enough(folder(records, bench=bench_of(load_suite("smoke"))), ROOT)
    assert re.fullmatch(r"For an answer: tfdist bench --suite quick \(about 2 min\)\.", text)


def test_a_bench_of_few_rounds_is_resumed_and_the_time_is_that_of_the_turns_that_are_left() -> None:
    suite = replace(narrow(load_suite("cpu"), ["one-device", "mirrored/auto"]), rounds=2, incarnations=2)
    rounds = [record("one-device", round=n) for n in (1, 2)]
    rounds += [record("mirrored/auto", round=n, strategy="mirrored", devices=2) for n in (1, 2)]
    text = how_to_measure_enough(folder(rounds, bench=bench_of(suite)), ROOT)
    found = re.fullmatch(
        r"For an answer: tfdist bench --resume 'bench results/one' --rounds 12 \(about (\d+) (s|min)\)\.", text
    )
    assert found is not None
    # 10 rounds of 2 arms, 2.5 s and an edge each, and 5 starts
    assert 60 < int(found[1]) * (60 if found[2] == "min" else 1) < 240


def test_arms_that_did_not_run_take_no_time() -> None:
    suite = replace(load_suite("cpu"), rounds=1, incarnations=1)
    times = []
    for names in (["one-device"], [arm.name for arm in suite.arms]):
        text = how_to_measure_enough(folder([record(name) for name in names], bench=bench_of(suite)), ROOT)
        times.append(int(text.partition("about ")[2].partition(" min")[0]))
    assert times[1] == pytest.approx(10 * times[0], rel=0.3)


def test_a_launch_has_nothing_to_resume() -> None:
    assert how_to_measure_enough(folder([record()]), ROOT) == ""
