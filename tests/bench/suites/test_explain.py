"""The arms that an explanation needs: added if the suite lacks them, reused if it has them."""

from typing import Any

import pytest

from tfdist.bench.references import Reference, identity, reference
from tfdist.bench.suites.arm import Arm
from tfdist.bench.suites.arms import resolve_arms
from tfdist.bench.suites.explain import explained
from tfdist.bench.suites.suite import Suite, load_suite, parse_suite
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine, local_machines

CPU = local_machines(Machine((0, 1), ()))


def suite_of(*arms: dict[str, Any], **defaults: Any) -> Suite:
    return parse_suite({"preset": "smoke", "defaults": defaults, "arms": list(arms)}, "mine")


def explain(suite: Suite, machines: Any = CPU) -> tuple[dict[str, Arm], tuple[str, ...]]:
    """By name; all of them can be resolved."""
    done, added = explained(suite, resolve_arms(suite.arms, machines, suite.preset).specs)
    resolve_arms(done.arms, machines, done.preset)
    again, more = explained(done, resolve_arms(done.arms, machines, done.preset).specs)
    assert again == done
    assert more == ()
    return {arm.name: arm for arm in done.arms}, added


def timed(arms: dict[str, Arm]) -> set[str]:
    return {name for name, arm in arms.items() if arm.choices.get("step_times")}


def test_the_suite_cpu_has_all_but_the_plain_loop() -> None:
    arms, added = explain(load_suite("cpu"))
    assert added == ("no-strategy",)
    without = {"no-strategy", "one-device", "parameter-server/1-ps", "parameter-server/2-ps"}
    assert timed(arms) == arms.keys() - without


def test_a_single_arm_gets_all_that_it_is_compared_with() -> None:
    arms, added = explain(suite_of({"name": "a", "strategy": "mirrored", "devices": 2}))
    assert added == ("one-device", "no-strategy", "independent/2")
    assert timed(arms) == {"a", "independent/2"}
    assert arms["independent/2"].choices["workers"] == 2


def test_real_data_is_compared_with_synthetic_data_of_the_same_classes() -> None:
    arms, added = explain(suite_of({"name": "a", "strategy": "mirrored", "devices": 2, "dataset": "digits"}))
    assert added == ("a (synthetic data)", "one-device", "no-strategy", "independent/2")
    assert timed(arms) == {"a (synthetic data)", "independent/2"}
    assert {arms[name].choices["dataset"] for name in added} == {"synthetic"}
    specs = resolve_arms(tuple(arms.values()), CPU, "smoke").specs
    twin = reference(specs["a"].to_json(), Reference.SYNTHETIC)
    assert identity(twin) == identity(specs["a (synthetic data)"].to_json())
    for which, name in zip((Reference.ONE_DEVICE, Reference.PLAIN, Reference.INDEPENDENT), added[1:], strict=True):
        assert identity(reference(twin, which)) == identity(specs[name].to_json())


def test_arms_of_other_work_have_references_of_their_own() -> None:
    two = {"strategy": "mirrored", "devices": 2}
    _, added = explain(suite_of({"name": "a", **two}, {"name": "b", **two, "batch_size": 64}))
    needed = ("one-device", "no-strategy", "independent/2")
    assert added == (*needed, *(f"{name} for b" for name in needed))


def test_knobs_of_the_exchange_share_their_references() -> None:
    two = {"strategy": "multiworker", "workers": 2}
    knobs = [{}, {"gradient_dtype": "bfloat16"}, {"bytes_per_pack": 1000}, {"slow_worker": 1, "slow_ms": 30}]
    arms, added = explain(suite_of(*({"name": f"arm {n}", **two, **knob} for n, knob in enumerate(knobs))))
    assert added == ("one-device", "no-strategy", "independent/2")
    assert len(timed(arms)) == 5


@pytest.mark.parametrize("knob", [{"api": "fit"}, {"steps_per_call": 10}])
def test_steps_that_cannot_be_timed_are_not(knob: dict[str, Any]) -> None:
    arms, _ = explain(suite_of({"name": "a", "strategy": "mirrored", "devices": 2, **knob}))
    assert "a" not in timed(arms)


def test_on_gpus_step_times_have_arms_of_their_own() -> None:
    gpus = local_machines(Machine((0, 1), ("A", "A")))
    arms, added = explain(suite_of({"name": "a", "strategy": "mirrored", "devices": 2}, dataset="synthetic"), gpus)
    assert added[-2:] == ("a (step times)", "independent/2 (step times)")
    assert timed(arms) == {"a (step times)", "independent/2 (step times)"}


def test_an_arm_that_is_added_has_no_place_in_the_matrix() -> None:
    matrix = {"strategy": ["mirrored", "multiworker"], "devices": [2]}
    suite = parse_suite({"preset": "smoke", "defaults": {"dataset": "digits"}, "matrix": matrix}, "mine")
    for machine in (Machine((0, 1), ("A",) * 4), Machine((0, 1, 2, 3), ())):
        arms, added = explain(suite, local_machines(machine))
        assert {name for name, arm in arms.items() if arm.levels} == arms.keys() - {*added}
        assert len(added) > 2


def test_your_own_program_is_compared_with_itself() -> None:
    arms, added = explain(suite_of({"name": "a", "strategy": "mirrored", "devices": 2, "command": ["true"]}))
    assert added == ("one-device", "no-strategy", "independent/2")
    assert {arm.command for arm in arms.values()} == {("true",)}
    assert not timed(arms)


def test_arms_that_end_at_an_accuracy_are_refused() -> None:
    with pytest.raises(TfdistError, match="suite convergence end at an accuracy"):
        explain(load_suite("convergence"))


def test_nothing_to_explain_is_refused() -> None:
    with pytest.raises(TfdistError, match="no arm of suite suite has several devices"):
        explain(suite_of({"name": "a", "strategy": "one-device"}))
