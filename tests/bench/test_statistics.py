import math
import random
from dataclasses import replace
from statistics import geometric_mean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, t, ttest_rel

from tfdist.bench.design import Block
from tfdist.bench.statistics import ArmVerdict, Statistics

Rounds = dict[str, dict[Block, float]]

rates = st.floats(1, 1000)
benches = st.dictionaries(
    st.sampled_from("abcdef"),
    st.dictionaries(st.builds(Block, st.integers(0, 1), st.integers(1, 5), st.integers(1, 2)), rates, min_size=1),
    min_size=1,
)


def rounds(*values: float, group: int = 0, incarnations: int = 0) -> dict[Block, float]:
    """One turn per round, the rounds divided among the incarnations; 0: each has its own."""
    starts = incarnations or len(values)
    return {Block(group, number, number * starts // len(values)): value for number, value in enumerate(values)}


def noisy(arms: dict[str, float], number: int = 12, sd: float = 0.06, seed: int = 0, incarnations: int = 4) -> Rounds:
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
    (comparison,) = Statistics({"a": rounds(*a), "b": rounds(*b)}, floor=0.0).compare([("a", "b")])
    expected = ttest_rel([math.log(x) for x in a], [math.log(x) for x in b]).confidence_interval(0.95)
    assert comparison.interval is not None
    assert comparison.interval.low == pytest.approx(math.exp(expected.low))
    assert comparison.interval.high == pytest.approx(math.exp(expected.high))
    assert comparison.interval.level == 0.95


def test_a_single_arm_has_students_interval_of_its_rounds() -> None:
    logs = [math.log(x) for x in (100, 110, 130, 105)]
    found = Statistics({"a": rounds(100, 110, 130, 105)}).figure("a")
    assert found is not None
    assert found.interval is not None
    half = t.ppf(0.975, 3) * stdev(logs) / math.sqrt(4)
    assert found.interval.low == pytest.approx(math.exp(sum(logs) / 4 - half))


def test_drift_that_all_arms_share_widens_no_interval() -> None:
    drift = (1.0, 0.5, 2.0, 0.7)
    bench = Statistics({"a": rounds(*(100 * x for x in drift)), "b": rounds(*(101 * x for x in drift))}, floor=0.0)
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


def test_turns_of_a_start_are_no_replicates() -> None:
    """As many turns of the same spread: in one case each start has its luck."""
    turns = noisy({"a": 100, "b": 100}, sd=0.01)
    lucky = {
        arm: {block: rate * (1 + 0.03 * ((block.incarnation + index) % 2)) for block, rate in turns[arm].items()}
        for index, arm in enumerate(turns)
    }
    ((even,), (apart,)) = (Statistics(each).compare([("b", "a")]) for each in (turns, lucky))
    assert even.interval is not None
    assert apart.interval is not None
    assert math.log(apart.interval.high / apart.interval.low) > 2 * math.log(even.interval.high / even.interval.low)


def test_two_arms_of_four_starts_have_students_interval_of_the_means_of_starts() -> None:
    bench = noisy({"a": 100, "b": 90}, seed=5)
    (comparison,) = Statistics(bench, floor=0.0).compare([("a", "b")])
    a, b = (
        [sum(math.log(r) for k, r in bench[arm].items() if k.incarnation == i) / 3 for i in range(4)] for arm in "ab"
    )
    expected = ttest_rel(a, b).confidence_interval(0.95)
    assert comparison.interval is not None
    assert math.log(comparison.interval.low) == pytest.approx(expected.low)
    assert math.log(comparison.interval.high) == pytest.approx(expected.high)


def test_the_floor_is_added_in_quadrature() -> None:
    bench = {arm: rounds(*[rate] * 8) for arm, rate in {"a": 100.0, "b": 100.0, "c": 50.0}.items()}
    (comparison,) = Statistics(bench, floor=0.02).compare([("b", "a")])
    assert comparison.interval is not None
    assert math.log(comparison.interval.high) == pytest.approx(0.02 * norm.ppf(0.975))


@pytest.mark.parametrize(("starts", "known"), [(1, False), (3, False), (4, True)])
def test_fewer_than_four_starts_give_an_interval_but_no_verdict_below_five_per_cent(starts: int, known: bool) -> None:
    def bench(rate: float) -> Rounds:
        return noisy({"a": 100, "b": rate, "c": 100, "d": 100, "e": 100}, sd=1e-4, incarnations=starts)

    small, large = (Statistics(bench(rate), floor=1e-4).compare([("b", "a")])[0] for rate in (96, 70))
    assert small.interval is not None
    assert small.verdict is (ArmVerdict.SLOWER if known else ArmVerdict.CANNOT_TELL)
    assert large.verdict is ArmVerdict.SLOWER


def test_the_variance_of_few_starts_is_partly_assumed() -> None:
    """Turns without any noise, in one start: 2.3 % for each arm, with 8 degrees of freedom."""
    bench = {arm: rounds(*[100.0] * 3, incarnations=1) for arm in "ab"}
    (comparison,) = Statistics(bench, floor=0.0).compare([("b", "a")])
    assert comparison.interval is not None
    assert math.log(comparison.interval.high) == pytest.approx(0.023 * math.sqrt(2) * t.ppf(0.975, 8), rel=1e-3)


def test_differences_that_equal_arms_may_have_are_no_verdict() -> None:
    bench = noisy({"a": 100, "b": 97, "c": 80}, sd=1e-4)
    pairs = [("b", "a"), ("c", "a")]
    assert [c.verdict for c in Statistics(bench, 1e-4).compare(pairs)] == [ArmVerdict.SLOWER, ArmVerdict.SLOWER]
    small, large = Statistics(bench, 1e-4, least=dict.fromkeys("bc", 0.05)).compare(pairs)
    assert (small.verdict, large.verdict) == (ArmVerdict.CANNOT_TELL, ArmVerdict.SLOWER)


def test_all_comparisons_of_a_report_share_the_error_rate() -> None:
    bench = noisy(dict.fromkeys("abcd", 100))
    family = (("b", "a"), ("c", "a"), ("d", "a"), ("c", "b"))
    (alone,), (one,), (turned,), (other,) = (
        Statistics(bench, family=given).compare([pair])
        for given, pair in (((), ("b", "a")), (family, ("b", "a")), (family, ("a", "b")), (family, ("d", "c")))
    )
    assert [each.interval.level for each in (alone, one, turned, other) if each.interval] == [
        0.95, *[1 - 0.05 / 4] * 3,
    ]  # fmt: skip
    assert (alone.comparisons, one.comparisons) == (1, 4)


def test_a_start_that_differs_from_the_others_of_its_arm_is_odd() -> None:
    bench = noisy(dict.fromkeys("abcdef", 100), sd=0.01, seed=3)
    assert list(Statistics(bench).odd_starts()) == []
    bench["b"] = {block: rate * (0.88 if block.incarnation == 2 else 1) for block, rate in bench["b"].items()}
    (found,) = Statistics(bench).odd_starts()
    assert (found.arm, found.block.incarnation) == ("b", 2)
    assert found.change == pytest.approx(-0.12, abs=0.02)


@pytest.mark.parametrize("arms", ["ab", "abc"])
def test_of_few_arms_only_the_odd_one_is_named(arms: str) -> None:
    bench = noisy(dict.fromkeys(arms, 100), sd=0.005, seed=3)
    bench["b"] = {block: rate * (0.85 if block.incarnation == 2 else 1) for block, rate in bench["b"].items()}
    assert [(found.arm, found.block.incarnation) for found in Statistics(bench).odd_starts()] == [("b", 2)]


def test_noisy_turns_make_no_start_odd() -> None:
    for seed in range(20):
        assert list(Statistics(noisy(dict.fromkeys("abcdef", 100), sd=0.06, seed=seed)).odd_starts()) == []


def test_a_noisy_arm_widens_the_interval_of_quiet_ones_less_than_its_own() -> None:
    quiet = noisy(dict.fromkeys("abcd", 100), sd=0.01)
    bench = Statistics({**quiet, **noisy({"wild": 100}, sd=0.2, seed=1)})
    one, wild = (compared.interval for compared in bench.compare([("b", "a"), ("wild", "a")]))
    assert one is not None
    assert wild is not None
    assert math.log(wild.high / wild.low) > 1.3 * math.log(one.high / one.low)


def test_pairs_in_blocks_of_their_own_have_the_noise_of_their_own_differences() -> None:
    bench = noisy(dict.fromkeys("abcd", 100), incarnations=8, number=24)
    uneven = {arm: {b: r * (0.4 if b.incarnation % 2 else 1) for b, r in bench[arm].items()} for arm in "cd"}
    pairs = [("b", "a"), ("d", "c")]
    phases = {**bench, **uneven}
    apart = Statistics(
        {arm: {replace(b, folder=pair[0]): rate for b, rate in phases[arm].items()} for pair in pairs for arm in pair}
    )
    expected = [Statistics({arm: bench[arm] for arm in pair}).ratio(*pair).half_width() for pair in pairs]
    assert [apart.ratio(*pair).half_width() for pair in pairs] == pytest.approx(expected)
    assert min(Statistics(phases).ratio(*pair).half_width() for pair in pairs) > 2 * max(expected)
    assert apart.ratio("b", "c").variance is None
    assert [each.comparisons for each in apart.compare(pairs)] == [2, 2]


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
