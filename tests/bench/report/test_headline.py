import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tfdist.bench.report.build import key_figures, summarize_report
from tfdist.bench.report.columns import scaling_of
from tfdist.bench.report.section import KeyFigure
from tfdist.bench.report.summary import others_over, rank
from tfdist.bench.report.warnings import trust_of
from tfdist.models.record import Record
from tfdist.models.strategy_check import StrategyCheck
from tfdist.strategies.choice import StrategyChoice

from .rows import folder, four, rows_of, text_of, timed, with_losses

MakeRecord = Callable[..., Record]


TWO = {"strategy": "mirrored", "devices": 2}


def test_the_headline_names_the_fastest_arm_and_its_speed_up(bench_records: list[Record]) -> None:
    text = text_of(bench_records)
    assert text.startswith(
        "mirrored/auto was the fastest of 4 arms (not counted: independent, without exchange; one-device, on one device)"
        ": 123.1 images/s for the whole job on 2 devices, measurably faster than every other arm."
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
    advice = "were measured, in too few rounds to compare them: use --rounds 4 or more."
    assert text_of([make_record("one"), *two, *side]) == f"3 of 3 arms {advice}"
    failed = make_record("bad", strategy="mirrored", devices=2, status="failed", reason="x")
    assert text_of([make_record("one"), *two, failed]) == f"2 of 3 arms {advice} Not measured: 1 arm failed."


def test_arms_with_too_few_rounds_are_not_ranked(make_record: MakeRecord) -> None:
    fast = make_record("fast", [[0.01]], **TWO)
    slow = timed("slow", 0.12, 0.12, 0.12, 0.12, **TWO, cross_device="hierarchical-copy")
    text = text_of([*four("two", **TWO), *slow, fast])
    assert text.startswith("two was the fastest of 2 arms:")
    assert text.endswith("Not ranked: fast (fewer than 3 rounds).")


def test_an_arm_with_wrong_losses_is_not_ranked() -> None:
    fast = with_losses(timed("fast", *(0.01,) * 4, **TWO), 7.0, 3.0)
    others = [with_losses(four(name, **TWO), 7.0, 1.0) for name in ("a", "b", "c")]
    text = text_of([*fast, *(record for arm in others for record in arm)])
    assert text.startswith(
        "No measurable difference between 3 arms: a, b, c, 100.0 to 100.0 images/s for the whole job. "
    )
    assert text.endswith("Not ranked: fast (wrong losses).")


def test_an_arm_whose_program_did_not_train_under_its_strategy_is_not_ranked() -> None:
    refuted = {
        "strategy_check": StrategyCheck.REFUTED,
        "strategy_note": "the program did not train under mirrored: x; y",
    }
    fast = [replace(record, **refuted) for record in timed("fast", *(0.01,) * 4, **TWO)]
    others = [record for name in ("a", "b") for record in four(name, **TWO)]
    text = text_of([*fast, *others])
    assert text.startswith("No measurable difference between 2 arms: a, b, 100.0 to 100.0 images/s for the whole job. ")
    assert text.endswith("Not ranked: fast (its program did not train under its strategy).")


def test_arms_of_one_device_are_compared_if_there_is_nothing_else() -> None:
    slow = timed("b", 0.12, 0.1201, 0.1199, 0.12, precision="mixed_float16")
    text = text_of([*timed("a", 0.1, 0.1001, 0.1, 0.1), *slow])
    assert text.startswith("a was the fastest of 2 arms: 100.0 images/s")


A, B = [0.1, 0.101, 0.1, 0.1], [0.102, 0.101, 0.102, 0.103]
"""Seconds of turns that do not differ measurably: 99.8 and 98.0 images/s."""


def packed(arm: str, packs: int, seconds: Sequence[float]) -> list[Record]:
    return timed(arm, *seconds, **TWO, packs=packs)


def slower(arm: str, packs: int, factor: float) -> list[Record]:
    return packed(arm, packs, [factor * time for time in A])


def limit_of(records: list[Record], best: str, ties: Sequence[str]) -> str:
    """By how much the slowest of these may be slower than `best`."""
    rows = rows_of(records)
    compared = others_over(rows[best], [rows[arm] for arm in ties])
    return f"{math.ceil(100 - 100 * min(each.interval.low for _, each in compared if each.interval))}%"


def test_the_headline_names_all_arms_that_are_the_fastest() -> None:
    made = [*packed("a", 2, A), *slower("slow", 3, 1.3), *packed("b", 4, B), *slower("slower", 5, 2.0)]
    limit = limit_of(made, "a", ["b"])
    assert text_of(made) == (
        "2 of 4 arms are the fastest, without a measurable difference: a, b, 98.0 to 99.8 images/s for the whole job. "
        f"b is at most {limit} slower than a, by its interval."
    )
    assert 0 < int(limit.removesuffix("%")) < 10


def test_of_arms_that_all_tie_the_headline_names_none_as_the_fastest() -> None:
    made = [*packed("b", 2, B), *packed("a", 3, A), *slower("c", 4, 1.01)]
    assert text_of(made) == (
        "No measurable difference between 3 arms: a, b, c, 98.0 to 99.8 images/s for the whole job. "
        f"Each of them is at most {limit_of(made, 'a', ['b', 'c'])} slower than a, by its interval."
    )


def test_without_a_tie_the_headline_names_one_arm() -> None:
    made = [*slower("slow", 3, 1.3), *packed("a", 2, A), *slower("slower", 4, 2.0)]
    assert text_of(made) == (
        "a was the fastest of 3 arms: 99.8 images/s for the whole job on 2 devices, measurably faster than every other arm."
    )


def test_the_speed_up_beside_a_tie_says_of_which_arm_it_is() -> None:
    one = timed("one", 0.16, 0.16, 0.16, 0.161)
    text = text_of([*one, *packed("a", 2, A), *packed("b", 3, B)])
    assert re.search(r" a is 1\.60 times one \(1\.5\d to 1\.6\d\): measurably faster\. Efficiency 80%\.$", text)


def figures_of(records: list[Record]) -> list[KeyFigure]:
    rows, pairs = summarize_report([folder(records)])
    return list(key_figures(rows, trust_of(rows, pairs)))


def test_the_key_figure_of_a_tie_is_its_range() -> None:
    tie, one = [*packed("a", 2, A), *packed("b", 3, B)], slower("slow", 4, 1.3)
    (figure,) = figures_of([*tie, *one])
    assert figure.value == "98 to 100 images/s"
    assert figure.meaning.startswith("2 arms without a measurable difference; a: whole job, 2 devices (")
    (alone,) = figures_of([*packed("a", 2, A), *one])
    assert (alone.value, alone.meaning.partition(" (")[0]) == ("99.8 images/s", "whole job, 2 devices")


def test_without_measurements_the_headline_counts_the_reasons(make_record: MakeRecord) -> None:
    assert text_of([make_record(status="failed", reason="x")]) == "Nothing was measured: 1 arm failed."


def program(records: list[Record], examples: int) -> list[Record]:
    """A program of the user's own, whose steps have that many examples on each rank."""
    spec = {**StrategyChoice().to_json(), "command": "python train.py"}
    chosen = ("strategy", "workers", "devices", "ps")
    return [
        replace(
            each,
            spec={**spec, **{key: each.spec[key] for key in chosen}},
            ranks=tuple(
                replace(rank, windows=tuple(replace(window, examples=examples) for window in rank.windows))
                for rank in each.ranks
            ),
        )
        for each in records
    ]


def test_programs_are_ranked_at_equal_work() -> None:
    """64 examples per step, but a parameter server's worker has all of them."""
    servers = {"strategy": "parameter-server", "workers": 2, "ps": 1}
    mirrored, copies = program(four("mirrored", **TWO), 64), program(four("copies", **TWO, cross_device="nccl"), 64)
    ps = program([replace(each, ranks=(replace(each.ranks[0], task="chief-0"),)) for each in four("ps", **servers)], 64)
    rows = rows_of([*program(four("one"), 64), *mirrored, *copies, *ps])
    assert [(row.batch_per_replica, row.batch_global) for row in rows.values()] == [
        (64, 64),
        (32, 64),
        (32, 64),
        (64, 128),
    ]
    assert scaling_of(list(rows.values())) == "mixed"
    ranked, left = rank([row for row in rows.values() if row.measured])
    assert [row.arm for row in ranked] == ["mirrored", "copies"]
    assert left == {"ps": "64, not the 32 examples per device and step of mirrored"}
    alike = rows_of([*program(four("one"), 32), *mirrored, *program(ps, 32)])
    assert scaling_of(list(alike.values())) == "weak"
    assert rank(list(alike.values()))[1] == {}


def test_an_arm_that_contradicts_the_plan_is_not_ranked_and_no_arm_is_the_fastest() -> None:
    fast = timed("fast", 0.02, 0.0201, 0.02, 0.02, **TWO)
    others = [one for packs in (2, 3) for one in timed(f"{packs}-packs", 0.1, 0.1002, 0.1, 0.1, **TWO, packs=packs)]
    text = text_of([*timed("one", 0.1, 0.1001, 0.1, 0.1), *fast, *others])
    assert text == (
        "4 of 4 arms were measured. Not ranked: fast (2 devices are 5.00 times as fast as one, an efficiency of 250%, "
        "and its whole interval is above 100%)."
    )
