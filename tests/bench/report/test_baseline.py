"""The arm that each arm of a report is compared with."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tfdist.bench.folder import BenchFile
from tfdist.bench.report.build import make_report
from tfdist.bench.report.columns import COLUMNS, values_of
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.bench.report.warnings import warnings_for
from tfdist.bench.statistics import ArmVerdict
from tfdist.bench.suites.suite import parse_suite
from tfdist.launch.errors import TfdistError
from tfdist.models.record import Record
from tfdist.models.strategy_check import StrategyCheck

from .rows import codes, folder, four, rows_of, timed

SaveAll = Callable[[Path, Sequence[Record]], Path]

ONES = [
    *timed("float32", 0.1, 0.101, 0.1, 0.1),
    *timed("bfloat16", 0.2, 0.201, 0.2, 0.2, precision="mixed_bfloat16"),
    *timed("xla", 1.3, 1.301, 1.3, 1.3, xla=True),
]
"""One device in three ways, as a suite without any strategy compares them."""
TWO = {"strategy": "mirrored", "devices": 2}


def against(rows: dict[str, ArmRow]) -> dict[str, str]:
    return {arm: row.one_device.label for arm, row in rows.items() if row.one_device}


def test_arms_on_one_device_are_compared_with_the_first_of_them() -> None:
    rows = rows_of(ONES)
    assert against(rows) == dict.fromkeys(("float32", "bfloat16", "xla"), "float32")
    xla = rows["xla"].one_device
    assert xla is not None
    assert xla.comparison.ratio == pytest.approx(1 / 13, rel=0.01)
    assert xla.comparison.verdict is ArmVerdict.SLOWER
    column = next(column for column in COLUMNS if column.title == "against the baseline")
    shown = [column.text(values_of(row, "weak")) for row in rows.values()]
    assert shown == ["baseline", "slower", "slower"]


def test_what_differs_between_arms_on_one_device_is_no_warning() -> None:
    """It is what they were measured for; between other arms and their baseline it is one."""
    assert codes([*four("one", gpus=True), *four("xla", gpus=True, xla=True)]) == []
    assert codes([*four("one", gpus=True), *four("xla", gpus=True, xla=True, **TWO)]) == ["different-work"]


def test_an_arm_on_several_devices_has_the_one_device_arm_of_its_work() -> None:
    rows = rows_of([*ONES, *four("two", **TWO), *four("two/xla", xla=True, **TWO)])
    assert (against(rows)["two"], against(rows)["two/xla"]) == ("float32", "xla")


ARMS = [{"name": "one", "strategy": "one-device"}, *({"name": name, **TWO} for name in ("two", "other"))]
MEASURED = [*four("one"), *four("two", **TWO, examples=30), *four("other", **TWO, cross_device="hierarchical-copy")]


def bench_with(**keys: object) -> BenchFile:
    return BenchFile(parse_suite({"name": "s", "rounds": 4, "arms": ARMS, **keys}, "s"), "tfdist bench", "", ())


def test_the_baseline_of_the_suite_is_that_of_all_arms() -> None:
    rows = summarize([folder(MEASURED, bench=bench_with(baseline="two"))])
    assert [row.one_device.label for row in rows if row.one_device] == ["two"] * 3
    versus = {row.arm: row.one_device for row in rows if row.one_device}
    assert versus["one"].comparison.ratio == pytest.approx(100 / 300)
    assert versus["one"].efficiency == pytest.approx(2 * 100 / 300), "per device"
    assert versus["other"].comparison.ratio == pytest.approx(100 / 300)
    plain = summarize([folder(MEASURED, bench=bench_with())])
    assert [row.one_device.label for row in plain if row.one_device] == ["one"] * 3


def test_a_given_baseline_replaces_that_of_the_suite() -> None:
    for bench in (None, bench_with(), bench_with(baseline="two")):
        rows = summarize([folder(MEASURED, bench=bench)], "other")
        assert [row.one_device.label for row in rows if row.one_device] == ["other"] * 3


def test_work_that_differs_from_a_chosen_baseline_is_no_warning() -> None:
    made = [*four("one", gpus=True), *four("two", gpus=True, xla=True, **TWO)]
    found = [[each.code for each in warnings_for(summarize([folder(made)], chosen))] for chosen in (None, "one")]
    assert found == [["different-work"], []]


def test_a_chosen_baseline_without_a_measurement_is_no_baseline() -> None:
    """Other arms do not take its place, nor does one whose program did not train under its strategy."""
    note = "the program did not train under mirrored: x; y"
    found = {"strategy_check": StrategyCheck.REFUTED, "strategy_note": note}
    refuted = [replace(each, **found) if each.arm == "two" else each for each in MEASURED]
    for made in ([each for each in MEASURED if each.arm != "two"], refuted):
        assert [row.one_device for row in summarize([folder(made, bench=bench_with(baseline="two"))])] == [None] * 3


def test_each_folder_has_the_baseline_of_its_suite() -> None:
    folders = [folder(MEASURED, "x", bench_with(baseline="other")), folder(MEASURED, "y", bench_with())]
    versus = {row.label: row.one_device.label for row in summarize(folders) if row.one_device}
    assert versus == {f"{where}: {arm}": f"{where}: {baseline}" for where, baseline in (("x", "other"), ("y", "one"))
                      for arm in ("one", "two", "other")}  # fmt: skip


def test_a_report_has_the_given_baseline(tmp_path: Path, save_all: SaveAll) -> None:
    report = make_report([save_all(tmp_path, MEASURED)], baseline="other")
    assert {row["baseline"] for row in report.to_json()["rows"]} == {"other"}
    assert report.headline[0].startswith("Use two: 3.00 times other, ")


def test_a_baseline_that_was_not_measured_is_refused_with_the_nearest_name(tmp_path: Path, save_all: SaveAll) -> None:
    root = save_all(tmp_path, MEASURED)
    with pytest.raises(TfdistError) as raised:
        make_report([root], baseline="nope")
    assert str(raised.value) == "--baseline nope: no measured arm; choose from one, two, other"
    with pytest.raises(
        TfdistError, match=r"--baseline othre: no measured arm; did you mean other\? Choose from one, two"
    ):
        make_report([root], baseline="othre")
