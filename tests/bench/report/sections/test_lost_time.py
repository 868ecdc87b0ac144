"""The section on lost time: its parts, its sentence and its advice, from records with known losses."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.bench.conftest import record
from tests.bench.report.rows import folder
from tests.bench.test_lost_time import arm, one
from tfdist.bench.report.section import Section
from tfdist.bench.report.sections.lost_time import lost_time_section
from tfdist.bench.report.summary import ReportData, summarize
from tfdist.models.record import Record

LINK = {"bytes_per_s": 1e5, "rtt_s": 1e-3}


def spec(records: Sequence[Record], **values: Any) -> list[Record]:
    return [replace(each, spec={**each.spec, **values}) for each in records]


def bench(*arms: Record, rounds: int = 4) -> list[Record]:
    """The arms and what they are compared with, in as many rounds, each 1 % slower than the one before."""
    timed = {"step_times": True}
    independent = spec([arm("independent", [0.105, 0.105], 0.005)], **timed)
    every = [one("no-strategy", 0.098), one("one-device", 0.1), *independent, *spec(arms, **timed)]
    return [slower(each, number) for number in range(1, rounds + 1) for each in every]


def slower(turn: Record, number: int) -> Record:
    return replace(scaled(turn, 1 + number / 100), round=number)


def scaled(turn: Record, factor: float) -> Record:
    def of_times(times: dict[str, Any]) -> dict[str, Any]:
        rows = [[factor * value for value in row] for row in times["ready"]]
        return {**times, "ready": rows, "done": [factor * value for value in times["done"]]}

    ranks = tuple(
        replace(rank, windows=tuple(replace(w, elapsed_s=factor * w.elapsed_s) for w in rank.windows))
        for rank in turn.ranks
    )
    observed = {task: {"step_times": of_times(dict(each["step_times"]))} for task, each in turn.observed.items()}
    return replace(turn, ranks=ranks, observed=observed)


def section(records: Sequence[Record]) -> Section | None:
    folders = (folder(records),)
    return lost_time_section(ReportData(folders, summarize(folders)))


def answer(*arms: Record, rounds: int = 4) -> str:
    found = section(bench(*arms, rounds=rounds))
    assert found is not None
    return " ".join(found.answer)


def test_the_parts_are_columns_and_sum_to_the_loss() -> None:
    found = section(bench(arm("multiworker", [0.108, 0.138], 0.045)))
    assert found is not None
    (table,) = found.tables
    (row,) = table.rows
    assert row["waiting"].startswith("30.7 (")
    assert row["last rank"] == "worker-1, 100% of steps"
    values = {name[:-3]: value for name, value in table.data.iloc[0].items() if name.endswith("_ms")}
    whole = [values.pop(name) for name in ("step", "ideal", "loss")]
    assert whole[0] - whole[1] == pytest.approx(whole[2])
    assert sum(values.values()) == pytest.approx(whole[2])
    assert "waiting 30.7" in found.charts[0].alt


def test_the_largest_part_names_its_cause() -> None:
    assert "worker-1 is the last one in 100% of steps" in answer(arm("multiworker", [0.108, 0.178], 0.045))
    assert "Exchange is the largest part of the loss of multiworker (76.9 of 92.2 ms)" in answer(
        arm("multiworker", [0.108, 0.108], 0.08)
    )
    text = answer(arm("multiworker", [0.108, 0.108], 0.008))
    assert "Shared hardware is the largest part of the loss of multiworker" in text
    assert "Beyond shared hardware, strategy overhead is the largest part" in text
    assert "computes its own gradients more slowly" in answer(arm("multiworker", [0.158, 0.158], 0.01))


@pytest.mark.parametrize(("seconds", "verb"), [(0.036, "may be"), (0.045, "is")])
def test_of_two_parts_with_overlapping_intervals_one_may_be_the_largest(seconds: float, verb: str) -> None:
    """30 ms of waiting beside 31 or 40 ms of exchange, all with a spread of 1 % over rounds."""
    assert f"Exchange {verb} the largest part of the loss of multiworker" in answer(
        arm("multiworker", [0.105, 0.135], seconds)
    )


@pytest.mark.parametrize(("seconds", "expected"), [(0.06, "The link is the limit"), (0.5, "The link is not the limit")])
def test_an_exchange_between_hosts_is_compared_with_the_floor_of_a_ring(seconds: float, expected: str) -> None:
    """4,000 bytes, of which each of 2 ranks sends all, at 100 kB/s: 40 ms."""
    two = replace(arm("multiworker", [0.108, 0.108], seconds, clocks=(0, 3)), hosts=2, link=LINK)
    alone = replace(arm("independent", [0.105, 0.105], 0.005, clocks=(0, 3)), hosts=2, link=LINK)
    text = answer(two, replace(alone, arm="independent/2-hosts"))
    assert expected in text
    assert "40 ms" in text
    assert "1 Mbit/s" in text


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (arm("multiworker", [0.105, 0.165], 0.006), "multiworker: exchange may be the largest part of its loss ("),
        (arm("multiworker", [0.105, 0.105], 0.006), "multiworker: cannot tell whether it loses time: "),
    ],
)
def test_an_uncertain_part_gets_no_advice(other: Record, expected: str) -> None:
    """The exchange takes 80 ms in every other round; in the rest, waiting takes as long, or nothing does."""
    both = zip(bench(arm("multiworker", [0.105, 0.105], 0.08)), bench(other), strict=True)
    found = section([one if one.round % 2 else another for one, another in both])
    assert found is not None
    assert found.answer[0].startswith(expected)


def test_a_part_on_whose_sign_starts_disagree_gets_no_advice() -> None:
    """The exchange takes 145 ms in 3 of 4 starts, and less than the update of an independent training in one."""
    slow, fast = bench(arm("multiworker", [0.105, 0.105], 0.15)), bench(arm("multiworker", [0.105, 0.105], 0.001))
    found = section([other if one.round == 4 else one for one, other in zip(slow, fast, strict=True)])
    assert found is not None
    (text,) = found.answer
    assert text.startswith(
        "multiworker: no advice, because its starts disagree on whether exchange is a loss or a gain (-"
    )
    assert "more --incarnations" in text


@pytest.mark.parametrize(("factor", "is_said"), [(1.01, False), (1.06, True)])
def test_an_ideal_whose_starts_differ_by_more_than_5_percent_gives_no_advice(factor: float, is_said: bool) -> None:
    """Two starts of two rounds; in the second one no-strategy is slower by some percent, and all arms by 2 %."""
    records = [
        replace(each, incarnation=1 + each.round // 3) for each in bench(arm("multiworker", [0.108, 0.178], 0.045))
    ]
    found = section(
        [scaled(each, factor) if each.incarnation == 2 and each.arm == "no-strategy" else each for each in records]
    )
    assert found is not None
    text = " ".join(found.answer)
    no_advice = "No advice for multiworker: the starts of no-strategy, the ideal, differ by 8% ("
    assert text.startswith(no_advice) is is_said
    assert ("the largest part" in text) is not is_said
    (table,) = found.tables
    assert (table.rows[0]["starts"], table.rows[0]["rounds"]) == ("2", "4")


def test_too_few_rounds_give_no_advice() -> None:
    assert answer(arm("multiworker", [0.108, 0.138], 0.045), rounds=2).startswith("Too few rounds")


def test_an_arm_without_its_references_says_why() -> None:
    records = [each for each in bench(arm("multiworker", [0.1, 0.1], 0.05)) if each.arm != "independent"]
    both = [
        *bench(arm("multiworker", [0.1, 0.1], 0.05)),
        *spec([slower(arm("multiworker", [0.1, 0.1], 0.05), 1)], seed=3),
    ]
    alone = section(records)
    assert alone is not None
    assert alone.answer == (
        "multiworker: not explained, because no independent arm with the same work and number of devices was measured.",
    )
    other = [replace(each, arm="other") if each.spec["seed"] == 3 else each for each in both]
    found = section(other)
    assert found is not None
    assert any(text.startswith("other: not explained, because no one-device arm") for text in found.answer)


def test_a_bench_without_step_times_has_no_section() -> None:
    records = [record("one", [[0.1]]), record("two", [[0.2]], strategy="mirrored", devices=2)]
    assert section(records) is None
