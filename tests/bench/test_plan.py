from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.plan import (
    Costs,
    PlannedRun,
    Spent,
    beside,
    extended,
    fitting_rounds,
    fitting_starts,
    incarnations,
    interleave,
    seconds_left,
    spread,
    start_of,
    start_s,
)
from tfdist.bench.suites.suite import Suite
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

SPECS = {"a": TrainingSpec(), "b": TrainingSpec(strategy=StrategyName.MULTI_WORKER, workers=2)}
SUITE = Suite((), turn_s=2.0, warmup_s=3.0)
STARTS = sum(map(start_s, SPECS.values())) + 2 * 3.0


def left_s(rounds: int, number: int) -> float:
    return seconds_left(incarnations(interleave(list(SPECS), rounds, 0), spread(rounds, number)), SPECS, SUITE)


def test_each_process_adds_to_the_start() -> None:
    assert start_s(replace(SPECS["b"], workers=4)) > start_s(SPECS["b"]) > start_s(SPECS["a"])


def test_an_incarnation_is_its_starts_and_its_turns() -> None:
    rounds = left_s(12, 1) - left_s(6, 1)
    assert rounds == pytest.approx(6 * 2 * 2.5)
    assert left_s(12, 2) - left_s(12, 1) == pytest.approx(STARTS)
    assert left_s(6, 1) == pytest.approx(STARTS + rounds)


def test_processes_that_are_executed_gpus_and_xla_add_to_the_start() -> None:
    one = SPECS["a"]
    program = StrategyChoice(strategy=one.strategy)
    assert start_s(one, isolated=True) == start_s(program) == start_s(program, isolated=True) > start_s(one)
    assert start_s(replace(one, gpus=True, xla=True)) > start_s(replace(one, gpus=True)) > start_s(one)


def test_starts_and_turns_cost_what_they_do_on_the_machine() -> None:
    costs = Costs(starts=2.0, edge_s=1.5)
    blocks = list(incarnations(interleave(list(SPECS), 12, 0), spread(12, 3)))
    assert seconds_left(blocks, SPECS, SUITE, costs) == pytest.approx(3 * 2 * STARTS + 24 * 3.5)
    seconds = 3 * 2 * STARTS + 12 * 2 * 3.5 + 0.1
    suite = replace(SUITE, rounds=12, incarnations=3)
    assert fitting_rounds(suite, SPECS, seconds, costs) == 12 < fitting_rounds(suite, SPECS, seconds)
    assert fitting_starts(suite, SPECS, seconds, costs) == 3 < fitting_starts(suite, SPECS, seconds)


def test_nothing_left_takes_no_time() -> None:
    assert seconds_left((), SPECS, SUITE) == 0


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("isolated", [False, True])
def test_rounds_that_fit_into_a_time_are_estimated_to_take_it(number: int, isolated: bool) -> None:
    suite = replace(SUITE, incarnations=number, isolated=isolated)
    rounds = fitting_rounds(suite, SPECS, 600.0)
    blocks = [list(incarnations(interleave(list(SPECS), many, 0), spread(many, many if isolated else number)))
              for many in (rounds, rounds + 1)]  # fmt: skip
    fits, exceeds = (seconds_left(each, SPECS, suite) for each in blocks)
    assert fits <= 600 < exceeds
    assert fitting_rounds(suite, SPECS, 1.0) == 1


def test_a_short_time_has_fewer_rounds_in_each_start_before_it_has_fewer_starts() -> None:
    suite = replace(SUITE, rounds=12, incarnations=4)
    round_s = 2 * 2.5

    def fitting(starts: int, rounds: int) -> tuple[int, int]:
        seconds = starts * STARTS + rounds * round_s + 0.1
        number = fitting_starts(suite, SPECS, seconds)
        return number, fitting_rounds(replace(suite, incarnations=number), SPECS, seconds)

    assert [fitting(4, 12), fitting(4, 7), fitting(4, 4), fitting(3, 3)] == [(4, 12), (4, 7), (4, 4), (3, 3)]
    assert fitting(1, 0) == (1, 1)
    assert fitting(9, 27) == (9, 27), "more time has more starts, not longer ones"


def test_the_time_left_is_what_starts_and_turns_took_so_far() -> None:
    spent = Spent()
    assert spent.left_s(0, 4, 2.5) == pytest.approx(4 * 3.0)
    spent.add_start(60.0)
    spent.add_start(30.0, again=True)
    assert spent.left_s(2, 0, 2.5) == pytest.approx(180.0)
    for seconds in (2.0, 4.0):
        spent.add_turn(seconds)
    assert spent.left_s(1, 10, 2.5) == pytest.approx(90.0 + 30.0)


names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True)


@given(names, st.integers(1, 5), st.integers(0, 99))
def test_every_round_has_every_arm_once(arms: list[str], rounds: int, seed: int) -> None:
    plan = interleave(arms, rounds, seed)
    assert [run.round for run in plan] == sorted(run.round for run in plan)
    for number in range(1, rounds + 1):
        assert sorted(run.arm for run in plan if run.round == number) == sorted(arms)


@given(names, st.integers(0, 99))
def test_a_longer_plan_with_the_same_seed_starts_like_a_shorter_one(arms: list[str], seed: int) -> None:
    assert interleave(arms, 3, seed) == interleave(arms, 5, seed)[: 3 * len(arms)]


@given(names, st.integers(0, 99), st.data())
def test_the_arms_of_a_pair_have_their_turns_one_after_the_other(
    arms: list[str], seed: int, data: st.DataObject
) -> None:
    half = data.draw(st.integers(0, len(arms) // 2))
    pairs = list(zip(arms[:half], arms[half : 2 * half], strict=True))
    order = [run.arm for run in interleave(arms, 1, seed, pairs)]
    assert sorted(order) == sorted(arms)
    assert all(abs(order.index(one) - order.index(other)) == 1 for one, other in pairs)


def test_either_arm_of_a_pair_comes_first() -> None:
    plan = interleave(["new", "base"], 12, 0, [("new", "base")])
    assert {run.arm for run in plan[::2]} == {"new", "base"}


def test_rounds_and_seeds_differ_in_order() -> None:
    arms = [str(number) for number in range(20)]
    plan = interleave(arms, 2, 0)
    assert [run.arm for run in plan[:20]] != [run.arm for run in plan[20:]]
    assert plan[:20] != interleave(arms, 1, 1)


def test_rounds_that_an_arm_lacks_have_the_baseline_too() -> None:
    plan = interleave(["one", "a", "b"], 3, 0)
    partners = dict.fromkeys(("one", "a", "b"), "one")
    left = beside([PlannedRun(2, "a"), PlannedRun(3, "one")], plan, partners)
    assert sorted(left) == [PlannedRun(2, "a"), PlannedRun(2, "one"), PlannedRun(3, "one")]
    assert list(left) == [run for run in plan if run in left]
    assert beside((), plan, partners) == ()
    assert beside(plan, plan, partners) == plan


@pytest.mark.parametrize(
    ("rounds", "number", "blocks"),
    [(12, 2, [(1, 6), (7, 12)]), (1, 1, [(1, 1)]), (5, 2, [(1, 3), (4, 5)]), (3, 3, [(1, 1), (2, 2), (3, 3)]),
     (15, 3, [(1, 5), (6, 10), (11, 15)])],
)  # fmt: skip
def test_rounds_are_spread_evenly_over_incarnations(rounds: int, number: int, blocks: list[tuple[int, int]]) -> None:
    started = list(incarnations(interleave(["a", "b"], rounds, 0), spread(rounds, number)))
    assert [(runs[0].round, runs[-1].round) for runs in started] == blocks


@given(names, st.integers(1, 6), st.data())
def test_incarnations_are_what_is_left_in_order(arms: list[str], rounds: int, data: st.DataObject) -> None:
    plan = interleave(arms, rounds, 0)
    number = data.draw(st.integers(1, rounds))
    done = data.draw(st.sets(st.sampled_from(plan)))
    left = [run for run in plan if run not in done]
    started = list(incarnations(left, spread(rounds, number)))
    assert [run for runs in started for run in runs] == left
    assert all(started)
    assert len(started) <= number


@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_added_rounds_have_incarnations_of_their_own(rounds: int, more: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, rounds))
    ends = spread(rounds, number)
    longer = extended(ends, rounds + more)
    assert longer[:number] == ends, "no round changes its incarnation, and so its seed"
    assert longer[-1] == rounds + more
    assert max(end - before for before, end in pairwise(longer[number - 1 :])) <= ends[0]
    assert extended(longer, rounds + more) == longer


def test_fewer_rounds_have_fewer_incarnations() -> None:
    ends = spread(12, 2)
    assert [extended(ends, total) for total in (1, 6, 7, 12)] == [(1,), (6,), (6, 7), (6, 12)]
    assert [extended(ends, total) for total in (13, 18, 19)] == [(6, 12, 13), (6, 12, 18), (6, 12, 16, 19)]


@given(st.integers(1, 40), st.data())
def test_the_incarnation_of_a_round_is_that_of_the_plan(rounds: int, data: st.DataObject) -> None:
    ends = spread(rounds, data.draw(st.integers(1, rounds)))
    planned = list(incarnations(interleave(["a"], rounds, 0), ends))
    found = [start_of(run.round, ends) for runs in planned for run in runs]
    assert found == [index for index, runs in enumerate(planned) for _ in runs]
