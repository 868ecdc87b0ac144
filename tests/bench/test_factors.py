"""What a bench measures of a matrix and what it predicts, on effects that are known."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.factors import (
    CHECKS,
    DEFAULT_ERROR,
    FEWEST,
    MARGIN,
    REACH,
    WORTH,
    can_wait,
    candidates,
    holds,
    misses,
    predict,
    screen,
)
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.suite import load_suite, parse_suite

GPU = load_suite("gpu").arms
GAIN = {"float32": 1.0, "mixed_bfloat16": 1.65, "mixed_float16": 1.7, "xla": 1.2}
SCREEN = 10 + 3
"""Each strategy in float32, and each other precision on one device."""


def rate(arm: Arm) -> float:
    """A throughput without interactions: an exchange costs 2, 5 and 10 % on two, four and eight devices."""
    devices = arm.choices.get("devices", 1) * arm.choices.get("workers", 1)
    alone = arm.choices["strategy"] in ("one-device", "independent")
    efficiency = 1.0 if alone else {1: 1.0, 2: 0.98, 4: 0.95, 8: 0.9}[devices]
    return float(devices * efficiency * GAIN[arm.levels.get("precision", "float32")])


LOGS = {arm.name: log(rate(arm)) for arm in GPU if arm.levels} | {arm.name: 0.0 for arm in GPU if not arm.levels}
RIVALS = [arm.name for arm in GPU if arm.choices["strategy"] not in ("one-device", "independent")]
AFTER_ONE = {name: LOGS[name] for name in screen(GPU)}
"""The logarithms after the first start of a bench."""


def grid(*sizes: int) -> list[Arm]:
    """All combinations of so many values of each list, the first list varying fastest."""
    places = [place[::-1] for place in product(*(range(size) for size in reversed(sizes)))]
    axes = ("strategy", "precision", "xla")
    return [
        Arm(repr(place), {}, levels={axis: f"v{value}" for axis, value in zip(axes, place, strict=False)})
        for place in places
    ]


def test_the_first_start_has_each_strategy_in_the_first_precision_and_each_precision_on_one_device() -> None:
    names = screen(GPU)
    assert names == tuple(arm.name for arm in GPU if arm.name in names)
    assert {arm.name for arm in GPU if not arm.levels} <= {*names}
    of_matrix = {arm.name for arm in GPU if arm.levels}.intersection(names)
    assert len(of_matrix) == SCREEN
    assert all(name.startswith("one-device/") or name.endswith("/float32") for name in of_matrix)


@pytest.mark.parametrize("suite", ["cpu", "stragglers", "batch"])
def test_a_small_matrix_is_measured_whole(suite: str) -> None:
    arms = load_suite(suite).arms
    assert screen(arms) == tuple(arm.name for arm in arms)
    assert candidates(arms, {arm.name: 0.0 for arm in arms}, 0) == ()


def test_a_matrix_without_its_first_combination_is_screened_around_another_one() -> None:
    matrix = {
        "strategy": ["one-device", "mirrored", "independent", "multiworker", "central-storage"],
        "batch_size": [1, 2, 4, 8, 16, 32],
        "exclude": [{"strategy": "one-device", "batch_size": 1}, {"strategy": "mirrored", "batch_size": 2}],
    }
    arms = parse_suite({"matrix": matrix}, "s").arms
    names = screen(arms)
    assert len(names) == 5 + 6 - 1
    logs = {arm.name: float(len(arm.levels["strategy"])) + arm.choices["batch_size"] for arm in arms}
    predicted = predict(arms, {name: logs[name] for name in names})
    assert predicted.keys() == logs.keys() - {*names}
    assert {name: each.log for name, each in predicted.items()} == pytest.approx({n: logs[n] for n in predicted})


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[Arm], Mapping[str, float]]:
    """Combinations of which any may be missing, and their logarithms without interactions."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    arms = draw(st.lists(st.sampled_from(grid(*sizes)), min_size=1, unique_by=lambda arm: arm.name))
    effect = st.floats(-3, 3)
    effects = {(axis, f"v{value}"): draw(effect) for axis in arms[0].levels for value in range(6)}
    return arms, {arm.name: sum(effects[place] for place in arm.levels.items()) for arm in arms}


@given(matrices(), st.data())
def test_without_interactions_every_prediction_is_right_and_the_screen_tells_all(
    case: tuple[list[Arm], Mapping[str, float]], data: st.DataObject
) -> None:
    arms, logs = case
    some = data.draw(st.sets(st.sampled_from([arm.name for arm in arms])))
    known = {name: logs[name] for name in some}
    predicted = predict(arms, known)
    assert not predicted.keys() & some
    assert {name: each.log for name, each in predicted.items()} == pytest.approx({n: logs[n] for n in predicted})
    assert holds(arms, known)
    for _ in range(len(arms) + 1):  # each start adds what tells more, until nothing is unknown
        more = candidates(arms, known, 0)
        assert not known.keys() & {*more}
        known |= {name: logs[name] for name in more}
    assert more == ()
    predicted = predict(arms, known)
    assert predicted.keys() | known.keys() == logs.keys()
    assert max(known.values()) == pytest.approx(max(logs.values())), "the fastest was measured"


@given(matrices())
def test_the_screen_tells_every_effect(case: tuple[list[Arm], Mapping[str, float]]) -> None:
    arms, logs = case
    names = screen(arms)
    predicted = predict(arms, {name: logs[name] for name in names})
    assert predicted.keys() == logs.keys() - {*names}
    assert len(arms) >= FEWEST or not predicted


def test_a_value_whose_effect_is_unknown_has_no_prediction_and_is_measured_once() -> None:
    without = [arm for arm in GPU if arm.name != "one-device/xla"]  # it failed
    logs = {name: LOGS[name] for name in AFTER_ONE if name != "one-device/xla"}
    unknown = {arm.name for arm in without if arm.levels.get("precision") == "xla"}
    assert not unknown & predict(without, logs).keys()
    assert len(unknown.intersection(candidates(without, logs, 0, RIVALS, checks=0))) == 1


def test_what_is_within_reach_of_the_best_is_measured_and_nothing_else_without_checks() -> None:
    fast = {f"{kind}/8/mixed_{precision}" for kind in ("mirrored/auto", "multiworker/nccl") for precision in ("float16", "bfloat16")}  # fmt: skip
    assert {*candidates(GPU, AFTER_ONE, 0, RIVALS, checks=0)} == fast
    # without rivals the trainings without exchange count, too
    assert {*candidates(GPU, AFTER_ONE, 0, None, checks=0)} == fast | {"independent/8/mixed_float16", "independent/8/mixed_bfloat16"}  # fmt: skip
    slower = candidates(GPU, AFTER_ONE, 0, RIVALS, reach=1 - 1.19 / 1.7, checks=0)
    assert {*slower} == fast | {"mirrored/auto/8/xla", "multiworker/nccl/8/xla"}


def test_an_arm_that_is_not_of_the_matrix_may_be_the_best() -> None:
    assert candidates(GPU, {**AFTER_ONE, "mirrored/nccl/8": log(30)}, 0, RIVALS, checks=0) == ()


def test_rivals_that_no_arm_has_are_all_arms() -> None:
    assert candidates(GPU, AFTER_ONE, 0, ["x"], checks=0) == candidates(GPU, AFTER_ONE, 0, None, checks=0)


def start_by_start(logs: Mapping[str, float], seed: int) -> list[tuple[str, ...]]:
    """What each start adds, until it adds nothing."""
    measured = dict(AFTER_ONE)
    added = []
    while more := candidates(GPU, measured, seed, RIVALS):
        added.append(more)
        measured |= {name: logs[name] for name in more}
    return added


def test_checks_are_a_sample_of_what_an_interaction_could_make_the_fastest() -> None:
    near = {*candidates(GPU, AFTER_ONE, 0, RIVALS, checks=0)}
    best = max(LOGS[name] for name in near)
    samples = set()
    for seed in range(8):
        (added,) = start_by_start(LOGS, seed)
        checks = {*added} - near
        assert len(checks) == CHECKS, "of all starts together"
        assert all(name in RIVALS and WORTH <= exp(LOGS[name] - best) < 1 - REACH for name in checks)
        assert start_by_start(LOGS, seed) == [added]
        samples.add(frozenset(checks))
    assert len(samples) > 1


def missing_of(logs: Mapping[str, float], among: Sequence[str]) -> set[str]:
    return {name for name in among if name in LOGS and name not in logs}


def test_a_combination_that_is_faster_than_predicted_has_all_others_measured_that_may_be_the_fastest() -> None:
    measured = {**AFTER_ONE, **{name: LOGS[name] for name in candidates(GPU, AFTER_ONE, 0, RIVALS, checks=0)}}
    check = "mirrored/auto/4/mixed_float16"
    (found,) = misses(GPU, {**AFTER_ONE, check: LOGS[check] + 0.02}).values()
    assert found == pytest.approx(0.02)
    best = max(measured[name] for name in RIVALS if name in measured)
    worth = {name for name in missing_of(measured, RIVALS) if LOGS[name] > best + log(WORTH)} - {check}
    assert len(worth) > CHECKS
    for change, expected in ((MARGIN + 0.02, worth), (MARGIN - 0.02, set()), (-0.5, set())):
        logs = {**measured, check: LOGS[check] + log(1 + change)}
        assert holds(GPU, logs) == (not expected)
        assert {*candidates(GPU, logs, 0, RIVALS, checks=0)} == expected


def test_an_error_shows_how_far_the_measured_ones_were_off() -> None:
    assert {each.error for each in predict(GPU, AFTER_ONE).values()} == {DEFAULT_ERROR}
    added = candidates(GPU, AFTER_ONE, 0, RIVALS)
    right = predict(GPU, {**AFTER_ONE, **{name: LOGS[name] for name in added}})
    off = predict(GPU, {**AFTER_ONE, **{name: LOGS[name] - 0.3 for name in added}})
    assert [each.error for each in right.values()] == pytest.approx(
        [DEFAULT_ERROR / (1 + len(added)) ** 0.5] * len(right)
    )
    assert min(each.error for each in off.values()) > 0.25


def test_gains_that_shrink_beside_an_exchange_leave_the_fastest_measured() -> None:
    """The predictions are then too high, and the next start adds what is within reach of the measured best."""
    true = {name: value - (0.4 * log(1.7) if "/8/mixed" in name else 0.0) for name, value in LOGS.items()}
    true["multiworker/nccl/8/xla"] = log(8 * 0.9 * 1.25)
    added = start_by_start(true, 0)
    assert "multiworker/nccl/8/xla" in {name for names in added for name in names}


def test_arms_out_of_reach_of_what_is_measured_next_can_wait() -> None:
    joining = candidates(GPU, AFTER_ONE, 0, RIVALS)
    waiting = can_wait(GPU, AFTER_ONE, joining)
    assert {"mirrored/auto/8/float32", "one-device/float32", "independent/8/float32"} <= waiting
    best = max(LOGS[name] for name in joining)
    assert waiting == {name for name, value in AFTER_ONE.items() if value < best + log(1 - REACH)}
    assert can_wait(GPU, AFTER_ONE, ()) == set()
