from collections.abc import Callable
from dataclasses import replace

import pytest

from tfdist.models.record import Record
from tfdist.models.strategy_check import StrategyCheck

from .rows import text_of, three, timed, with_losses

MakeRecord = Callable[..., Record]


TWO = {"strategy": "mirrored", "devices": 2}


def test_the_headline_names_the_fastest_arm_and_its_speed_up(bench_records: list[Record]) -> None:
    text = text_of(bench_records)
    assert text.startswith(
        "mirrored/auto was the fastest of 4 arms (not counted: independent, without exchange; one-device, on one device)"
        ": 122.9 images/s for the whole job on 2 devices."
    )
    assert "1.25 times one-device" in text
    assert "95% of independent" in text
    assert "1 arm failed" in text


def test_the_headline_does_not_rank_the_ceiling(make_record: MakeRecord) -> None:
    side = make_record("side", [[0.1], [0.1]], strategy="independent", workers=2)
    assert text_of([make_record("one"), side]).startswith("one: 100.0 images/s")


def test_the_headline_of_the_ceiling_alone_is_its_figure(make_record: MakeRecord) -> None:
    side = make_record("side", [[0.1], [0.1]], strategy="independent", workers=2)
    assert text_of([side]) == "side: 200.0 images/s for the whole job on 2 devices."
    failed = make_record("two", strategy="mirrored", devices=2, status="failed", reason="x")
    assert text_of([side, failed]).endswith("on 2 devices. Not measured: 1 arm failed.")


@pytest.mark.parametrize("rounds", [1, 2])
def test_fewer_than_three_rounds_name_no_fastest_arm(make_record: MakeRecord, rounds: int) -> None:
    side = [make_record("side", [[0.1], [0.1]], strategy="independent", workers=2)]
    two = [make_record("two", round=n, strategy="mirrored", devices=2) for n in range(1, rounds + 1)]
    advice = "were measured, in too few rounds to compare them: use --rounds 3 or more."
    assert text_of([make_record("one"), *two, *side]) == f"3 of 3 arms {advice}"
    failed = make_record("bad", strategy="mirrored", devices=2, status="failed", reason="x")
    assert text_of([make_record("one"), *two, failed]) == f"2 of 3 arms {advice} Not measured: 1 arm failed."


def test_arms_with_too_few_rounds_are_not_ranked(make_record: MakeRecord) -> None:
    fast = make_record("fast", [[0.01]], **TWO)
    text = text_of([*three("two", **TWO), *three("other", **TWO, cross_device="hierarchical-copy"), fast])
    assert "the fastest of 2 arms:" in text
    assert "fast was" not in text


def test_an_arm_with_wrong_losses_is_not_ranked() -> None:
    fast = with_losses(timed("fast", 0.01, 0.01, 0.01, **TWO), 7.0, 3.0)
    others = [with_losses(three(name, **TWO), 7.0, 1.0) for name in ("a", "b", "c")]
    text = text_of([*fast, *(record for arm in others for record in arm)])
    assert "the fastest of 3 arms" in text
    assert text.endswith("Not ranked, because of wrong losses: fast.")


def test_an_arm_whose_program_did_not_train_under_its_strategy_is_not_ranked() -> None:
    refuted = {
        "strategy_check": StrategyCheck.REFUTED,
        "strategy_note": "the program did not train under mirrored: x; y",
    }
    fast = [replace(record, **refuted) for record in timed("fast", 0.01, 0.01, 0.01, **TWO)]
    others = [record for name in ("a", "b") for record in three(name, **TWO)]
    text = text_of([*fast, *others])
    assert "the fastest of 2 arms" in text
    assert text.endswith("Not ranked, because the program did not train under them: fast.")


def test_arms_of_one_device_are_compared_if_there_is_nothing_else() -> None:
    text = text_of([*timed("a", 0.1, 0.1001, 0.1), *timed("b", 0.12, 0.1201, 0.1199, precision="mixed_float16")])
    assert text.startswith("a was the fastest of 2 arms: 100.0 images/s")


def test_the_headline_lists_arms_without_a_measurable_difference() -> None:
    noisy = timed("noisy", 0.09, 0.13, 0.101, strategy="central-storage", devices=2)
    assert "No measurable difference from noisy." in text_of([*three("two", **TWO), *noisy])


def test_without_measurements_the_headline_counts_the_reasons(make_record: MakeRecord) -> None:
    assert text_of([make_record(status="failed", reason="x")]) == "Nothing was measured: 1 arm failed."
