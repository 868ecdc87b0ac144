import math
import random

import pytest

from tfdist.bench.collectives.figures import figures_of, pack_sentences

from .lines import line, sweep


def measured(times, rounds=6, spread=0.01):
    draw = random.Random(3)
    return [
        line(tensors=158, size=14_020_000, pack=pack, round=number, seconds=seconds * draw.lognormvariate(0, spread))
        for number in range(1, rounds + 1)
        for pack, seconds in times.items()
    ]


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
    assert pack_sentences([line(), line(round=2)]) == ()
    assert pack_sentences(measured({None: 0.02})) == ()


def test_the_time_of_a_size_is_the_geometric_mean_of_its_rounds():
    (figure,) = figures_of(sweep(line(seconds=0.01, round=1), line(seconds=0.04, round=2), line(seconds=0.02, round=3)))
    assert figure.seconds == pytest.approx(0.02)
    assert (figure.rounds, figure.wrong, figure.count) == (3, 0, 1 << 18)
    assert figure.interval.low < 0.02 < figure.interval.high


def test_two_rounds_have_no_interval():
    (figure,) = figures_of(sweep(line(), line(round=2)))
    assert (figure.interval, figure.busbw_interval) == (None, None)


def test_mobilenet_in_20_ms_on_4_ranks():
    (figure,) = figures_of(sweep(*(line(size=14_020_000, seconds=0.02, ranks=4, round=n) for n in (1, 2, 3))))
    assert figure.algbw == pytest.approx(0.701)
    assert figure.busbw == pytest.approx(1.0515)
    assert figure.busbw_interval.low == pytest.approx(1.0515)


def test_arms_sizes_and_packs_are_rows_of_their_own_in_order():
    lines = [line("b", 4096), line("b", 1024), line("a"), line("b", 99, tensors=2, pack=7), line("b", 99, tensors=2)]
    rows = [(each.line.arm, each.line.bytes, each.line.pack_bytes) for each in figures_of(sweep(*lines))]
    assert rows == [("b", 1024, None), ("b", 4096, None), ("b", 99, None), ("b", 99, 7), ("a", 1 << 20, None)]


def test_wrong_elements_are_added_up_over_rounds():
    (figure,) = figures_of(sweep(line(wrong=1), line(round=2, wrong=4)))
    assert figure.wrong == 5


def test_95_of_100_intervals_hold_the_true_time():
    draw = random.Random(1)

    def covers() -> bool:
        rounds = [line(seconds=0.01 * math.exp(draw.gauss(0, 0.2)), round=number) for number in range(1, 7)]
        (figure,) = figures_of(sweep(*rounds))
        return figure.interval.low <= 0.01 <= figure.interval.high

    assert 0.93 < sum(covers() for _ in range(1000)) / 1000 < 0.97
