import math
import random
import re

import pytest

from tfdist.bench.collectives.figures import disturbed_turns, figures_of, noise_sentences, pack_sentences

from .lines import line, sweep


def measured(times, rounds=6, spread=0.01):
    draw = random.Random(3)
    return [
        line(tensors=158, size=14_020_000, pack=pack, round=number, seconds=seconds * draw.lognormvariate(0, spread))
        for number in range(1, rounds + 1)
        for pack, seconds in times.items()
    ]


SIZES = [4**power << 10 for power in range(9)]


def turns(draw, arm="multiworker/auto", noise=0.02, start_noise=0.0, slow=(), one_slow=()):
    """Four starts of three rounds, of all sizes. `slow`: rounds in which all take twice as long; `one_slow`: one size."""
    of_starts = [draw.gauss(0, start_noise) for _ in range(4)]
    for number in range(1, 13):
        start = (number - 1) // 3
        turn = of_starts[start] + draw.gauss(0, noise) + (math.log(2) if number in slow else 0)
        for size in SIZES:
            alone = math.log(8) if number in one_slow and size == SIZES[3] else 0
            seconds = (1e-3 + size * 1e-9) * math.exp(turn + alone + draw.gauss(0, noise))
            yield line(arm, size, seconds, number, incarnation=start + 1)


def test_the_fastest_pack_is_named_with_its_gain():
    (text,) = pack_sentences(measured({None: 0.020, 1 << 20: 0.016, 4 << 20: 0.019}))
    assert text.startswith("multiworker/ring: packs of 1M exchange the gradients fastest, 1.2")
    assert "the rate of one pack" in text


def test_equal_packs_have_no_measurable_difference():
    (text,) = pack_sentences(measured({None: 0.020, 1 << 20: 0.020, 4 << 20: 0.0201}, spread=0.1))
    assert text == "multiworker/ring: no measurable difference between one pack and packs of 1M and 4M."


def test_packs_that_only_cost_time_are_said_to():
    (text,) = pack_sentences(measured({None: 0.010, 1 << 20: 0.020}))
    assert text.startswith("multiworker/ring: one pack is the fastest; packs of 1M, the next, have 0.50 times")


def test_some_packs_are_slower_and_the_rest_cannot_be_distinguished():
    (text,) = pack_sentences(measured({None: 0.010, 1 << 10: 0.020, 1 << 20: 0.010}))
    assert text == (
        "multiworker/ring: no measurable difference between one pack and packs of 1M; packs of 1K are measurably slower."
    )


def test_two_rounds_are_too_few_for_a_difference():
    (text,) = pack_sentences(measured({None: 0.020, 1 << 20: 0.010}, rounds=2))
    assert text == "multiworker/ring: fewer than 3 rounds, so pack sizes are not compared."


def test_single_tensors_and_single_packs_say_nothing():
    assert list(pack_sentences([line(), line(round=2)])) == []
    assert list(pack_sentences(measured({None: 0.02}))) == []


def test_packs_of_one_start_share_its_luck():
    """The start of each arm is 20 % faster or slower, and a pack is 10 % faster than one: measurable in each start."""
    draw = random.Random(5)
    lines = [
        line(arm, tensors=158, pack=pack, seconds=seconds * draw.lognormvariate(0, 0.01), round=number)
        for number in range(1, 7)
        for arm, luck in (("multiworker/auto", draw.gauss(1, 0.2)), ("multiworker/ring", draw.gauss(1, 0.2)))
        for pack, seconds in ((None, 0.022 * luck), (1 << 20, 0.020 * luck))
    ]
    texts = list(pack_sentences(lines))
    assert [text.partition(":")[0] for text in texts] == ["multiworker/auto", "multiworker/ring"]
    assert all("packs of 1M exchange the gradients fastest" in text for text in texts)


def test_the_time_of_a_size_is_the_geometric_mean_over_starts_of_the_median_over_rounds():
    times = {1: (0.01, 0.02, 0.05), 2: (0.09, 0.08, 0.02)}
    (figure,) = figures_of(
        sweep(
            *(
                line(seconds=s, round=3 * start + n, incarnation=start)
                for start in times
                for n, s in enumerate(times[start])
            )
        )
    )
    assert figure.line.seconds == pytest.approx(0.04)
    assert (figure.rounds, figure.starts, figure.wrong, figure.count) == (6, 2, 0, 1 << 18)
    assert figure.interval.low < 0.04 < figure.interval.high


def test_a_disturbed_turn_is_found_once_and_moves_no_size():
    quiet, slow = (list(turns(random.Random(1), slow=rounds)) for rounds in ((), (8,)))
    assert list(disturbed_turns(quiet)) == []
    (text,) = disturbed_turns(slow)
    assert text.startswith("multiworker/auto, round 8: 2.0")
    assert text.endswith(" times as long as its other rounds (median over sizes)")
    for figure, undisturbed in zip(figures_of(sweep(*slow)), figures_of(sweep(*quiet)), strict=True):
        assert figure.line.seconds == pytest.approx(undisturbed.line.seconds, rel=0.02)


def test_a_single_slow_size_is_no_disturbed_turn():
    lines = list(turns(random.Random(1), one_slow=(2, 7)))
    assert list(disturbed_turns(lines)) == []
    fourth = figures_of(sweep(*lines))[3]
    assert fourth.line.seconds == pytest.approx(1e-3 + SIZES[3] * 1e-9, rel=0.05)


def test_less_than_five_percent_is_no_disturbance():
    lines = [line(seconds=0.01 if number < 12 else 0.0104, round=number) for number in range(1, 13)]
    assert list(disturbed_turns(lines)) == []


PAIR = {"same_arms": (("multiworker/ring", "multiworker/auto"),)}


def test_two_arms_that_do_the_same_show_the_noise_in_one_ratio_over_all_sizes():
    draw = random.Random(2)
    lines = [*turns(draw, slow=(5,)), *turns(draw, "multiworker/ring"), *turns(draw, "mirrored/auto", noise=0.0)]
    (text,) = noise_sentences(sweep(*lines, **PAIR))
    assert re.fullmatch(
        r"Noise \(A/A\): multiworker/ring takes (0\.9|1\.0)\d times \(95% interval 0\.9\d to 1\.0\d\) the time of "
        r"multiworker/auto, which does the same, and 0\.9\d to 1\.0\d times at single sizes\.",
        text,
    )


def test_a_difference_between_arms_that_do_the_same_is_a_reason_for_distrust():
    lines = [line(arm, size, seconds, number) for arm, seconds in (("multiworker/auto", 0.01), ("multiworker/ring", 0.02))
             for number in range(1, 6) for size in SIZES]  # fmt: skip
    (text,) = noise_sentences(sweep(*lines, **PAIR))
    assert "takes 2.00 times" in text
    assert text.endswith(": do not trust differences of this size.")


def test_an_arm_that_was_not_measured_has_no_noise():
    assert list(noise_sentences(sweep(*turns(random.Random(3)), **PAIR))) == []


@pytest.mark.slow
@pytest.mark.thorough
def test_equal_arms_are_called_different_in_at_most_5_of_100_sweeps():
    draw = random.Random(4)

    def differ() -> bool:
        lines = [each for arm in ("multiworker/auto", "multiworker/ring") for each in turns(draw, arm, 0.03, 0.023)]
        (text,) = noise_sentences(sweep(*lines, **PAIR))
        return "do not trust" in text

    assert sum(differ() for _ in range(200)) <= 17  # 10, and two standard errors


def test_two_rounds_have_no_interval():
    (figure,) = figures_of(sweep(line(), line(round=2)))
    assert (figure.interval, figure.busbw_interval) == (None, None)


def test_mobilenet_in_20_ms_on_4_ranks():
    (figure,) = figures_of(sweep(*(line(size=14_020_000, seconds=0.02, ranks=4, round=n) for n in (1, 2, 3))))
    assert figure.line.algbw == pytest.approx(0.701)
    assert figure.line.busbw == pytest.approx(1.0515)
    assert figure.busbw_interval.low == pytest.approx(1.0515)


def test_arms_sizes_and_packs_are_rows_of_their_own_in_order():
    lines = [line("b", 4096), line("b", 1024), line("a"), line("b", 99, tensors=2, pack=7), line("b", 99, tensors=2)]
    rows = [(each.line.arm, each.line.bytes, each.line.pack_bytes) for each in figures_of(sweep(*lines))]
    assert rows == [("b", 1024, None), ("b", 4096, None), ("b", 99, None), ("b", 99, 7), ("a", 1 << 20, None)]


def test_wrong_elements_are_added_up_over_rounds():
    (figure,) = figures_of(sweep(line(wrong=1), line(round=2, wrong=4)))
    assert figure.wrong == 5


@pytest.mark.thorough
@pytest.mark.slow
def test_95_of_100_intervals_hold_the_true_time():
    draw = random.Random(1)

    def covers() -> bool:
        rounds = [line(seconds=0.01 * math.exp(draw.gauss(0, 0.2)), round=number) for number in range(1, 7)]
        (figure,) = figures_of(sweep(*rounds))
        return figure.interval.low <= 0.01 <= figure.interval.high

    assert 0.93 < sum(covers() for _ in range(1000)) / 1000 < 0.97
