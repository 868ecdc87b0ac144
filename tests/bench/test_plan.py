from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.plan import PlannedRun, interleave, remaining

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
