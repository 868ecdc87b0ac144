"""The comparisons of a report: they share one error rate, and decide nothing that equal arms may show, too."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tfdist.bench.folder import BenchFile
from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.across import changes
from tfdist.bench.report.build import notes_on, sections_of, summarize_report
from tfdist.bench.report.summary import ArmRow, ReportData, others_over, summarize
from tfdist.bench.report.verdict import verdict_of
from tfdist.bench.statistics import FLOOR, ArmVerdict, Interval
from tfdist.bench.suites.suite import parse_suite
from tfdist.models.record import Record

from .rows import advice, folder, timed

STEADY = (0.1, 0.1004, 0.0998, 0.1)
TWO = {"strategy": "mirrored", "devices": 2, "examples": 20}
SERVERS = {"strategy": "parameter-server", "workers": 2, "ps": 1, "tasks": ["chief-0"]}


def arm(name: str, factor: float = 1.0, **spec: object) -> list[Record]:
    """Four starts, with another order of noise for each arm."""
    turn = sum(map(ord, name)) % 4
    return timed(name, *(factor * time for time in (*STEADY[turn:], *STEADY[:turn])), **spec)


def reported(*folders: ResultFolder) -> dict[str, ArmRow]:
    return {row.label: row for row in summarize_report(folders)[0]}


def level(interval: Interval | None) -> float:
    assert interval is not None
    return round(1 - interval.level, 9)


def speed_up_levels(rows: Sequence[ArmRow]) -> list[float]:
    """The error of each comparison with one device, but that of the baseline with itself."""
    versus = [row.one_device for row in rows if row.one_device and row.one_device.label != row.label]
    return sorted(level(each.comparison.interval) for each in versus)


SWEEP = [*arm("one"), *(one for packs in (2, 3, 4) for one in arm(f"packs-{packs}", 1.2, **TWO, packs=packs))]
"""Three equal arms, surely faster than one device: 3 comparisons with it, and 2 with the fastest of them."""


def test_speed_ups_and_the_comparisons_with_the_fastest_arm_are_one_family() -> None:
    rows = list(reported(folder(SWEEP)).values())
    best = max(rows, key=lambda row: row.rate)
    ties = [of for _, of in others_over(best, [row for row in rows if row.arm != "one"])]
    assert {of.comparisons for of in ties} == {row.one_device.comparison.comparisons for row in rows if row.one_device}
    assert ties[0].comparisons == 5
    # Holm: the sure ones at 0.05 / 5, / 4, / 3; both others, which cannot tell, at 0.05 / 2
    assert speed_up_levels(rows) == [0.01, 0.0125, round(0.05 / 3, 9)]
    assert [level(of.interval) for of in ties] == [0.025, 0.025]
    assert speed_up_levels(summarize([folder(SWEEP)])) == [round(0.05 / 3, 9), 0.025, 0.05], (
        "without the report's rules"
    )


def test_a_comparison_that_is_shown_twice_counts_once() -> None:
    """One device only: the first arm is the baseline, and the fastest."""
    made = [*arm("one"), *arm("b", 1.3, precision="mixed_float16"), *arm("c", 1.3, precision="mixed_bfloat16")]
    rows = reported(folder(made))
    assert rows["b"].one_device is not None
    assert rows["b"].one_device.comparison.comparisons == 2


def test_a_comparison_that_is_shown_in_both_directions_counts_once() -> None:
    """The asynchronous arm with the fastest one, and the fastest synchronous arm with the asynchronous one."""
    rows = reported(folder([*arm("one"), *arm("two", 1.2, **TWO), *arm("servers", 0.9, **SERVERS)]))
    assert rows["two"].one_device is not None
    assert rows["two"].one_device.comparison.comparisons == 3


def test_all_folders_of_a_report_are_one_family() -> None:
    """Half of the error rate is for what is compared within them, and half for the second with the first."""
    both = [*arm("one"), *arm("two", **TWO)]
    rows = reported(folder(both, "x"), folder(both, "y"))
    assert speed_up_levels(list(rows.values())) == [0.0125, 0.025]
    x, y = ([row for row in rows.values() if row.folder == name] for name in "xy")
    levels = [level(change.comparison.interval) for change in changes(x, y, "one") if change.comparison]
    assert levels == [0.0125, 0.0125]


def test_the_comparisons_of_sections_are_of_the_family() -> None:
    """Batch sizes of one device, which the headline does not rank beside two."""
    sizes = [one for batch in (1, 2, 4, 8) for one in arm(f"batch-{batch}", 1.0, batch_size=batch, examples=batch)]
    rows = reported(folder([*arm("first", alpha=0.35), *sizes, *arm("two", **TWO)]))
    series = [row for name, row in rows.items() if name.startswith("batch")]
    best = rows["batch-8"]
    assert max(series, key=lambda row: row.rate) is best
    # batch 1, 2, 4, 8 and two over the first one, and batch 1, 2, 4 over batch 8
    assert {of.comparisons for _, of in others_over(best, series)} == {5 + 3}


def test_the_number_of_comparisons_is_a_note() -> None:
    (note,) = (note for note in notes_on(list(reported(folder(SWEEP)).values())) if "Holm" in note)
    assert note.startswith("5 comparisons of arms: their intervals are widened (Holm) so that equal arms")


PAIR = [*arm("one"), *arm("a", 1.2, **TWO), *arm("again", 1.2 * 1.03, **TWO)]
"""Equal arms that differ by 3 %."""


def near(factor: float) -> list[Record]:
    """An arm of another configuration."""
    return arm("near", 1.2 * factor, **TWO, cross_device="hierarchical-copy")


def verdict(rows: dict[str, ArmRow], name: str, best: str) -> ArmVerdict:
    ((_, found),) = others_over(rows[best], [rows[name]])
    assert found.interval is not None
    return found.verdict


@pytest.mark.parametrize(("factor", "known"), [(1.04, False), (1.10, True)])
def test_less_than_equal_arms_may_differ_is_no_verdict(factor: float, known: bool) -> None:
    made = folder([*PAIR, *near(factor)])
    sure = {row.arm: row for row in summarize([made])}
    assert verdict(sure, "near", "a") is ArmVerdict.SLOWER, "its interval excludes 1"
    assert verdict(reported(made), "near", "a") is (ArmVerdict.SLOWER if known else ArmVerdict.CANNOT_TELL)


def test_the_advice_follows_the_limit_of_equal_arms() -> None:
    """And says how large it is."""
    assert advice([*PAIR, *near(1.04)]).startswith("Use a or near: ")
    assert advice([*PAIR, *near(1.1)]).startswith("Use a: ")
    rows, (pair,) = summarize_report([folder(PAIR)])
    limits = pair.comparison.interval
    assert limits is not None
    assert verdict_of(rows, (pair,)).within == pytest.approx(1 / limits.low - 1)


def test_the_limit_of_a_folder_is_not_that_of_another() -> None:
    """That of equal arms without a difference is the floor's 2 %."""
    equal = [*arm("one"), *arm("a", 1.2, **TWO), *arm("again", 1.2, **TWO)]
    quiet = folder([*equal, *near(1.04)], "quiet")
    rows = reported(folder([*PAIR, *near(1.04)], "x"), quiet)
    assert verdict(rows, "x: near", "x: a") is ArmVerdict.CANNOT_TELL
    assert verdict(rows, "quiet: near", "quiet: a") is ArmVerdict.SLOWER


def test_each_pair_of_equal_arms_has_an_interval_of_its_own_with_the_floor() -> None:
    """95 %, whatever else is compared; equal turns differ by the floor alone."""
    same = [one for name in ("b", "c", "d") for one in arm("a", **TWO)]
    named = [
        replace(one, arm=name) for name, one in zip("bcd" * 4, sorted(same, key=lambda one: one.round), strict=True)
    ]
    _, pairs = summarize_report([folder([*arm("one"), *arm("a", **TWO), *named])])
    assert [(pair.arm, pair.other) for pair in pairs] == [(name, "a") for name in "bcd"]
    for pair in pairs:
        assert level(pair.comparison.interval) == 0.05
        assert pair.comparison.interval.high == pytest.approx(1 + 1.96 * FLOOR, abs=1e-3)  # type: ignore[union-attr]


def test_the_floor_of_the_bench_counts() -> None:
    suite = parse_suite({"name": "s", "rounds": 4, "arms": [{"name": "one", "strategy": "one-device"}]}, "s")
    bench = BenchFile(suite, "tfdist bench", "", (), floor=0.04)
    made = [*arm("one"), *arm("again")]
    _, (pair,) = summarize_report([folder(made, bench=bench)])
    assert pair.comparison.interval is not None
    assert pair.comparison.interval.high == pytest.approx(1 + 2 * 0.04, abs=5e-3)
    assert verdict_of(*summarize_report([folder(made, bench=bench)])).within > 0.08
    assert verdict_of(*summarize_report([folder(made)])).within < 0.03


def test_sections_show_the_verdicts_of_the_report() -> None:
    """The fastest synchronous arm is 4 % faster than the asynchronous one: less than equal arms differ."""
    seconds = [0.6 * 1.04 * time for time in STEADY]
    made = (folder([*PAIR, *timed("servers", *seconds, **SERVERS)]),)

    def answer(rows: tuple[ArmRow, ...]) -> str:
        (kinds,) = (section for section in sections_of(ReportData(made, rows)) if section.key == "kinds")
        (text,) = kinds.answer
        return text

    assert answer(summarize(made)).endswith(": measurably faster.")
    assert answer(summarize_report(made)[0]).endswith(": no measurable difference.")
