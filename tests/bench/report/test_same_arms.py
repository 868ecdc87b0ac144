from collections.abc import Sequence

import pytest

from tfdist.bench.report.build import notes_on
from tfdist.bench.report.same_arms import SamePair, same_pairs
from tfdist.bench.report.summary import summarize
from tfdist.models.record import Record

from .rows import folder, rows_of, three, timed

WORKERS = {"strategy": "multiworker", "workers": 2, "tasks": ["worker-0"]}


def pairs_of(records: Sequence[Record]) -> list[tuple[str, str]]:
    return [(pair.arm, pair.other) for pair in same_pairs(summarize([folder(records)]))]


def pair_of(records: Sequence[Record]) -> SamePair:
    (pair,) = same_pairs(summarize([folder(records)]))
    return pair


def test_on_cpus_the_automatic_all_reduce_between_workers_is_the_ring() -> None:
    auto, ring = three("auto", **WORKERS), three("ring", **WORKERS, communication="ring")
    assert pairs_of([*auto, *ring]) == [("ring", "auto")]
    gpus = {**WORKERS, "gpus": True}
    assert pairs_of([*three("auto", **gpus), *three("ring", **gpus, communication="ring")]) == []


def test_the_length_of_a_training_does_not_make_another_configuration() -> None:
    assert pairs_of([*three("a", steps=10), *three("b", steps=20), *three("c", batch_size=32)]) == [("b", "a")]


def test_the_ratio_has_an_interval() -> None:
    pair = pair_of([*timed("a", 0.1, 0.101, 0.099), *timed("b", 0.1, 0.1, 0.1)])
    assert pair.comparison.ratio == pytest.approx(1.0, abs=1e-3)
    assert not pair.differs
    assert set(pair.to_json()) == {"arm", "other", "ratio", "low", "high", "rounds"}


def test_the_report_says_its_own_noise_or_that_it_is_unknown() -> None:
    rows = list(rows_of([*timed("a", 0.1, 0.101, 0.099), *timed("b", 0.1, 0.1, 0.1)]).values())
    (noise,) = (note for note in notes_on(rows, same_pairs(rows)) if "A/A" in note)
    assert "b and a are the same configuration" in noise
    rows = list(rows_of([*three("a"), *three("b", batch_size=32)]).values())
    assert any("is unknown" in note for note in notes_on(rows, ()))
