from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tfdist.bench.report.certainty import certainty_of, same_pairs
from tfdist.bench.report.summary import summarize
from tfdist.bench.same_arms import SamePair
from tfdist.bench.statistics import ArmVerdict
from tfdist.models.record import HostUsage, Record

from .rows import folder, four, timed

WORKERS = {"strategy": "multiworker", "workers": 2, "tasks": ["worker-0"]}


def pairs_of(records: Sequence[Record]) -> list[tuple[str, str]]:
    return [(pair.arm, pair.other) for pair in same_pairs(summarize([folder(records)]))]


def pair_of(records: Sequence[Record]) -> SamePair:
    (pair,) = same_pairs(summarize([folder(records)]))
    return pair


def test_on_cpus_the_automatic_all_reduce_between_workers_is_the_ring() -> None:
    auto, ring = four("auto", **WORKERS), four("ring", **WORKERS, communication="ring")
    assert pairs_of([*auto, *ring]) == [("ring", "auto")]
    gpus = {**WORKERS, "gpus": True}
    assert pairs_of([*four("auto", **gpus), *four("ring", **gpus, communication="ring")]) == []


def test_the_length_of_a_training_does_not_make_another_configuration() -> None:
    assert pairs_of([*four("a", steps=10), *four("b", steps=20), *four("c", batch_size=32)]) == [("b", "a")]


def test_the_ratio_has_an_interval() -> None:
    pair = pair_of([*timed("a", 0.1, 0.101, 0.099, 0.1), *timed("b", 0.1, 0.1, 0.1, 0.1)])
    assert pair.comparison.ratio == pytest.approx(1.0, abs=1e-3)
    assert pair.comparison.verdict is ArmVerdict.CANNOT_TELL
    assert set(pair.to_json()) == {"arm", "other", "ratio", "low", "high", "rounds"}


STEADY = (0.1, 0.101, 0.1, 0.1)
OTHER = {"strategy": "mirrored", "devices": 2, "examples": 20}


def text_of(records: Sequence[Record]) -> str:
    rows = summarize([folder(records)])
    found = certainty_of(rows, same_pairs(rows), str)
    return found.obstacle or found.text


def test_equal_arms_tell_how_sure_a_report_is() -> None:
    assert text_of([*timed("a", *STEADY), *timed("b", *STEADY)]) == (
        "Sure to within 2 %: two equal arms (A/A) differed by up to 2 %."
    )
    noisy = text_of([*timed("a", *STEADY), *timed("b", 0.1, 0.11, 0.105, 0.1)])
    assert noisy == "Sure to within 11 %: two equal arms (A/A) differed by up to 11 %."


def test_without_equal_arms_the_widest_interval_tells_it() -> None:
    without = "that is how well the least certain ratio is known; no arm was measured twice (A/A)."
    assert text_of([*timed("a", *STEADY), *timed("b", *STEADY, **OTHER)]) == f"Sure to within 2 %: {without}"
    noisy = [*timed("a", *STEADY), *timed("b", 0.1, 0.13, 0.105, 0.1, **OTHER)]
    assert text_of(noisy) == f"Sure to within 22 %: {without}"


def test_a_single_arm_is_not_compared() -> None:
    assert text_of(timed("a", *STEADY)) == ""


def test_few_starts_of_any_arm_make_a_report_less_sure() -> None:
    halves = [replace(each, incarnation=1 + (each.round - 1) // 2) for each in four("b")]
    assert text_of([*four("a"), *halves]) == "Sure to within 5 %: only 2 starts of each arm."
    one_start = [replace(each, incarnation=1) for name in "ab" for each in four(name)]
    assert text_of(one_start) == (
        "Sure to within 9 %: two equal arms (A/A) differed by up to 9 %. Only 1 start of each arm."
    )


def busy(one: Record) -> Record:
    """In a turn beside which other programs used 20 % of two cores."""
    return replace(one, hosts_usage=(HostUsage(10.0, 2, {"worker-0": 10.0}, 14.0, 0.0),))


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1, " 25 % of the turns were disturbed."),
        (3, "Too noisy to compare: 75 % of the turns were disturbed. End other programs and repeat the bench."),
    ],
)
def test_disturbed_turns_make_a_report_less_sure_or_useless(share: int, text: str) -> None:
    made = [busy(each) if each.round <= share else each for name in "ab" for each in four(name)]
    assert text_of(made).endswith(text)


def test_too_few_rounds_are_the_first_obstacle() -> None:
    rows = summarize([folder([busy(record("a")), record("b")])])
    found = certainty_of(rows, same_pairs(rows), lambda: "For an answer: x.")
    assert found.obstacle == "Too little was measured to compare: 1 round of each arm. For an answer: x."
    assert found.text == ""
