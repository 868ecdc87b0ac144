import math
import random
from statistics import geometric_mean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t, ttest_rel

from tfdist.bench.design import Block
from tfdist.bench.statistics import ArmVerdict, Statistics

Rounds = dict[str, dict[Block, float]]

rates = st.floats(1, 1000)
benches = st.dictionaries(
    st.sampled_from("abcdef"),
    st.dictionaries(st.builds(Block, st.integers(0, 1), st.integers(1, 5), st.integers(1, 2)), rates, min_size=1),
    min_size=1,
)


def rounds(*values: float, group: int = 0, incarnations: int = 1) -> dict[Block, float]:
    """One turn per round, the rounds divided among the incarnations."""
    return {Block(group, number, number * incarnations // len(values)): value for number, value in enumerate(values)}


def noisy(arms: dict[str, float], number: int = 12, sd: float = 0.06, seed: int = 0, incarnations: int = 2) -> Rounds:
    draw = random.Random(seed)
    return {
        arm: rounds(*(rate * draw.lognormvariate(0, sd) for _ in range(number)), incarnations=incarnations)
        for arm, rate in arms.items()
    }


def figure(statistics: Statistics, arm: str) -> float:
    found = statistics.figure(arm)
    assert found is not None
    return found.images_per_s


def test_a_balanced_bench_has_geometric_means() -> None:
    bench = Statistics({"a": rounds(100, 110, 130), "b": rounds(50, 60, 40)})
    assert figure(bench, "a") == pytest.approx(geometric_mean([100, 110, 130]))
    assert figure(bench, "b") == pytest.approx(geometric_mean([50, 60, 40]))
    (comparison,) = bench.compare([("a", "b")])
    assert comparison.ratio == figure(bench, "a") / figure(bench, "b")
    assert (comparison.rounds, comparison.comparisons) == (3, 1)


def test_two_arms_have_the_interval_of_the_paired_t_test() -> None:
    a, b = (100.0, 111.0, 130.0, 90.0), (50.0, 60.0, 60.0, 50.0)
    (comparison,) = Statistics({"a": rounds(*a), "b": rounds(*b)}).compare([("a", "b")])
    expected = ttest_rel([math.log(x) for x in a], [math.log(x) for x in b]).confidence_interval(0.95)
    assert comparison.interval is not None
    assert comparison.interval.low == pytest.approx(math.exp(expected.low))
    assert comparison.interval.high == pytest.approx(math.exp(expected.high))
    assert comparison.interval.level == 0.95


def test_a_single_arm_has_students_interval_of_its_rounds() -> None:
    logs = [math.log(x) for x in (100, 110, 130)]
    found = Statistics({"a": rounds(100, 110, 130)}).figure("a")
    assert found is not None
    assert found.interval is not None
    half = t.ppf(0.975, 2) * stdev(logs) / math.sqrt(3)
    assert found.interval.low == pytest.approx(math.exp(sum(logs) / 3 - half))


def test_drift_that_all_arms_share_widens_no_interval() -> None:
    drift = (1.0, 0.5, 2.0, 0.7)
    bench = Statistics({"a": rounds(*(100 * x for x in drift)), "b": rounds(*(101 * x for x in drift))})
    (comparison,) = bench.compare([("b", "a")])
    assert comparison.interval is not None
    assert (comparison.interval.low, comparison.interval.high) == pytest.approx((1.01, 1.01))
    assert comparison.verdict is ArmVerdict.FASTER


def test_a_missing_turn_is_filled_by_the_model() -> None:
    # the machine was half as fast in the last round, which b lacks: b would be 50 there
    late = rounds(100, 100, 100, 50)
    bench = Statistics({"a": late, "b": dict.fromkeys(list(late)[:3], 100), "c": late})
    assert figure(bench, "b") == pytest.approx(figure(bench, "a"))
    (comparison,) = bench.compare([("b", "a")])
    assert comparison.rounds == 3
    assert comparison.verdict is ArmVerdict.CANNOT_TELL


def test_two_groups_are_connected_by_their_baseline() -> None:
    # the second group ran while the machine was half as fast
    one, two = rounds(100, 100, 100), rounds(50, 50, 50, group=1)
    bench = Statistics({
        "baseline": {**one, **two},
        "first": {block: 2 * rate for block, rate in one.items()},
        "second": {block: 3 * rate for block, rate in two.items()},
    })  # fmt: skip
    first, second, both = bench.compare([("first", "baseline"), ("second", "baseline"), ("second", "first")])
    assert (first.ratio, second.ratio, both.ratio) == pytest.approx((2.0, 3.0, 1.5))
    assert second.verdict is ArmVerdict.FASTER


def test_arms_without_a_connection_cannot_be_compared() -> None:
    bench = Statistics({"a": rounds(100, 100, 101), "b": rounds(50, 50, 51, group=1)})
    (comparison,) = bench.compare([("a", "b")])
    assert comparison.ratio == pytest.approx(figure(bench, "a") / figure(bench, "b"))
    assert (comparison.interval, comparison.comparisons) == (None, 0)
    assert comparison.verdict is ArmVerdict.CANNOT_TELL


@pytest.mark.parametrize("number", [1, 2])
def test_fewer_than_three_rounds_have_no_interval_and_no_verdict(number: int) -> None:
    few = rounds(*[100.0] * number)
    bench = Statistics({"a": few, "b": dict.fromkeys(few, 50.0), "c": rounds(50, 50, 50)})
    found = bench.figure("a")
    assert found is not None
    assert (found.interval, found.rounds) == (None, number)
    (comparison,) = bench.compare([("a", "c")])
    assert (comparison.interval, comparison.verdict) == (None, ArmVerdict.CANNOT_TELL)


def test_rounds_that_only_just_connect_two_arms_leave_no_interval() -> None:
    blocks = list(rounds(*[100.0] * 5))
    bench = Statistics({"a": dict.fromkeys(blocks[:3], 100.0), "b": dict.fromkeys(blocks[2:], 50.0)})
    (comparison,) = bench.compare([("a", "b")])
    assert (comparison.ratio, comparison.interval) == (pytest.approx(2.0), None)


def test_an_arm_without_a_turn_has_no_figure() -> None:
    assert Statistics({"a": rounds(1, 1), "b": {}}).figure("b") is None


def test_an_arm_and_itself_cannot_tell() -> None:
    (comparison,) = Statistics({"a": rounds(1, 2, 3)}).compare([("a", "a")])
    assert (comparison.ratio, comparison.comparisons, comparison.verdict) == (1.0, 0, ArmVerdict.CANNOT_TELL)


def test_equal_turns_cannot_tell() -> None:
    bench = Statistics({arm: rounds(*[1 / 3] * 7, incarnations=2) for arm in "abcd"})
    assert {c.verdict for c in bench.compare([("b", "a"), ("c", "a"), ("d", "a")])} == {ArmVerdict.CANNOT_TELL}


def test_more_comparisons_make_wider_intervals_and_the_shown_one_decides() -> None:
    bench = Statistics(noisy({"base": 100, "equal": 100, "slow": 80, "slower": 60}))
    equal, slow, slower = bench.compare([("equal", "base"), ("slow", "base"), ("slower", "base")])
    assert [c.interval.level for c in (slower, slow, equal) if c.interval] == pytest.approx([1 - 0.05 / 3, 0.975, 0.95])
    assert (equal.verdict, slow.verdict, slower.verdict) == (
        ArmVerdict.CANNOT_TELL, ArmVerdict.SLOWER, ArmVerdict.SLOWER,
    )  # fmt: skip
    assert {c.comparisons for c in (equal, slow, slower)} == {3}


def test_the_comparisons_after_one_that_cannot_tell_keep_its_level() -> None:
    bench = Statistics(noisy(dict.fromkeys("abcd", 100)))
    levels = {c.interval.level for c in bench.compare([("b", "a"), ("c", "a"), ("d", "a")]) if c.interval}
    assert levels == {1 - 0.05 / 3}


def test_starts_that_differ_widen_the_interval() -> None:
    quiet = noisy(dict.fromkeys("abcdef", 100), sd=0.01, seed=3)
    lucky = {block: rate * (1.1 if block.incarnation else 1) for block, rate in quiet["b"].items()}
    equal, unequal = Statistics(quiet), Statistics({**quiet, "b": lucky})
    assert (equal.starts_differ, unequal.starts_differ) == (False, True)
    (pooled,) = equal.compare([("b", "a")])
    (apart,) = unequal.compare([("b", "a")])
    assert pooled.interval is not None
    assert apart.interval is not None
    assert apart.interval.low < 1 < apart.interval.high
    assert apart.interval.high / apart.interval.low > 1 + 5 * (pooled.interval.high / pooled.interval.low - 1)


def test_a_noisy_arm_does_not_widen_the_interval_of_quiet_ones() -> None:
    quiet = noisy(dict.fromkeys("abcd", 100), sd=0.01)
    wild = noisy({"wild": 100}, sd=0.2, seed=1)
    equal, unequal = Statistics(quiet), Statistics({**quiet, **wild})
    assert (equal.spreads_differ, unequal.spreads_differ) == (False, True)
    (alone,) = equal.compare([("b", "a")])
    (beside,) = unequal.compare([("b", "a")])
    assert alone.interval is not None
    assert beside.interval is not None
    assert math.log(beside.interval.high / beside.interval.low) < 2 * math.log(alone.interval.high / alone.interval.low)


@given(benches)
def test_every_ratio_divides(bench: Rounds) -> None:
    statistics = Statistics(bench)
    pairs = [(a, b) for a in bench for b in bench]
    for (a, b), comparison in zip(pairs, statistics.compare(pairs), strict=True):
        assert comparison.ratio == figure(statistics, a) / figure(statistics, b)


@given(benches, st.randoms())
def test_the_order_of_arms_and_of_rounds_does_not_matter(bench: Rounds, draw: random.Random) -> None:
    arms = draw.sample(list(bench), len(bench))
    shuffled = {arm: dict(draw.sample(list(bench[arm].items()), len(bench[arm]))) for arm in arms}
    one, other = Statistics(bench), Statistics(shuffled)
    for arm in bench:
        assert figure(one, arm) == pytest.approx(figure(other, arm), rel=1e-6)
    for arm, turns in bench.items():
        rates_of_arm = turns.values()
        if len(bench) == 1:
            assert min(rates_of_arm) * 0.999 <= figure(one, arm) <= max(rates_of_arm) * 1.001


@given(st.integers(0, 1000), st.floats(0.5, 2))
@settings(max_examples=30)
def test_a_comparison_turned_round_is_the_reciprocal(seed: int, rate: float) -> None:
    bench = Statistics(noisy({"a": 100, "b": 100 * rate, "c": 100}, number=6, seed=seed))
    (there,), (back,) = bench.compare([("a", "b")]), bench.compare([("b", "a")])
    assert there.interval is not None
    assert back.interval is not None
    assert there.interval.low == pytest.approx(1 / back.interval.high)
    assert {there.verdict, back.verdict} in ({ArmVerdict.FASTER, ArmVerdict.SLOWER}, {ArmVerdict.CANNOT_TELL})


def test_arms_without_any_spread_beside_a_noisy_one() -> None:
    wild = noisy({"wild": 100}, sd=0.3)
    blocks = list(wild["wild"])
    bench = Statistics({**wild, **{arm: dict.fromkeys(blocks, 100.0) for arm in "abcd"}})
    same, other = bench.compare([("b", "a"), ("wild", "a")])
    assert {same.verdict, other.verdict} == {ArmVerdict.CANNOT_TELL}
