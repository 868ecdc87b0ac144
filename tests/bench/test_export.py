"""Figures as dashboards read them."""

import pytest

from tests.bench.report.rows import folder, timed
from tfdist.bench.export import ExportFormat, exported, figures_of, figures_of_changes, ratios_of
from tfdist.bench.report.across import changes
from tfdist.bench.report.summary import summarize
from tfdist.bench.statistics import Comparison, Interval

ROWS = (*summarize([folder(timed("one", 0.1, 0.101, 0.1, 0.1))]), *summarize([folder(timed("two", 0.2))]))


class OfRows:
    rows = ROWS


def test_bencher_has_a_throughput_with_its_limits_for_each_arm() -> None:
    found = exported(figures_of(OfRows()), ExportFormat.BENCHER)  # type: ignore[arg-type]
    one, two = ROWS
    assert one.spread is not None
    limits = {"lower_value": one.spread.low, "upper_value": one.spread.high}
    assert found == {"one": {"throughput": {"value": one.images_per_s, **limits}}, "two": {"throughput": {"value": two.images_per_s}}}  # fmt: skip


def test_github_has_an_entry_for_each_figure_with_a_name_of_its_own() -> None:
    compared = [("one", Comparison(0.9, Interval(0.85, 0.95, 0.95), 12, 1))]
    found = exported([*figures_of(OfRows()), *ratios_of(compared)], ExportFormat.GITHUB)  # type: ignore[arg-type]
    assert [(each["name"], each["unit"]) for each in found] == [
        ("one", "images/s"),
        ("two", "images/s"),
        ("one: ratio", "times the base"),
    ]
    assert found[-1] == {
        "name": "one: ratio",
        "unit": "times the base",
        "value": 0.9,
        "range": "± 0.05",
        "extra": "0.85 to 0.95",
    }
    assert "range" not in found[1]


def test_a_comparison_has_both_figures_of_each_arm() -> None:
    other = summarize([folder(timed("one", 0.2, 0.202, 0.2, 0.2))])
    found = exported(figures_of_changes(changes(ROWS, other, None)), ExportFormat.BENCHER)
    assert found.keys() == {"one"}
    assert found["one"]["ratio"]["value"] == pytest.approx(0.5)
    assert found["one"]["throughput"]["value"] == other[0].images_per_s
