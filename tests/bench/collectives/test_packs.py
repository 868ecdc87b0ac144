import random

from tfdist.bench.collectives.packs import pack_sentences

from .lines import line


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
