from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.plan import PlannedRun, beside, extended, incarnations, interleave, remaining, spread, start_of

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


def test_rounds_and_seeds_differ_in_order() -> None:
    arms = [str(number) for number in range(20)]
    plan = interleave(arms, 2, 0)
    assert [run.arm for run in plan[:20]] != [run.arm for run in plan[20:]]
    assert plan[:20] != interleave(arms, 1, 1)


@given(names, st.integers(1, 4), st.integers(0, 99), st.data())
def test_a_resumed_plan_is_the_rest_in_the_same_order(
    arms: list[str], rounds: int, seed: int, data: st.DataObject
) -> None:
    plan = interleave(arms, rounds, seed)
    done = data.draw(st.sets(st.sampled_from(plan)))
    left = remaining(plan, done)
    assert set(left).isdisjoint(done)
    assert set(left) | done == set(plan)
    assert list(left) == [run for run in plan if run in left]


def test_refused_arms_are_not_run() -> None:
    assert remaining(interleave(["a", "b"], 2, 0), (), without={"a"}) == (PlannedRun(1, "b"), PlannedRun(2, "b"))


def test_rounds_that_an_arm_lacks_have_the_baseline_too() -> None:
    plan = interleave(["one", "a", "b"], 3, 0)
    left = beside([PlannedRun(2, "a"), PlannedRun(3, "one")], plan, "one")
    assert sorted(left) == [PlannedRun(2, "a"), PlannedRun(2, "one"), PlannedRun(3, "one")]
    assert list(left) == [run for run in plan if run in left]
    assert beside((), plan, "one") == ()
    assert beside(plan, plan, "one") == plan


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
    without = data.draw(st.sets(st.sampled_from(arms)))
    started = list(incarnations(remaining(plan, done, without), spread(rounds, number)))
    assert [run for runs in started for run in runs] == list(remaining(plan, done, without))
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
