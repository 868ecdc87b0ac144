import math
import random

import pytest

from tfdist.bench.collectives.figures import figures_of

from .lines import line, sweep


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
