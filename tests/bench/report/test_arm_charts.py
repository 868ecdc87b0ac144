"""What the pictures show, read from their axes."""

from collections.abc import Callable, Sequence

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.build import sections_of
from tfdist.bench.report.summary import ReportData, summarize
from tfdist.models.record import Record

MakeRecord = Callable[..., Record]


def painted(name: str, records: Sequence[Record]) -> Axes:
    folders = (ResultFolder("here", None, tuple(records), (), ()),)
    sections = sections_of(ReportData(folders, summarize(folders)))
    (chart,) = (chart for section in sections for chart in section.charts if chart.name == name)
    axes = Figure(figsize=(10, 5)).subplots()
    chart.paint(axes)
    return axes


def test_the_ideal_is_the_baselines_figure_times_the_number_of_devices(make_record: MakeRecord) -> None:
    ones = [make_record("one", [[t]], round=n) for n, t in enumerate((0.1, 0.2, 0.125), start=1)]
    both = [make_record("both", [[t]], round=n, strategy="mirrored", devices=2, examples=20)
            for n, t in enumerate((0.16, 0.18, 0.17), start=1)]  # fmt: skip
    lines = [line for line in painted("images_per_s", [*ones, *both]).lines if "ideal" in str(line.get_label())]
    assert [line.get_xdata()[0] for line in lines] == [pytest.approx(2 * (100 * 50 * 80) ** (1 / 3))]


def test_the_windows_of_ranks_side_by_side_are_shown_in_the_order_of_time(make_record: MakeRecord) -> None:
    made = make_record("side", [[0.1, 0.3], [0.2, 0.4]], strategy="independent", workers=2)
    (dots,) = painted("window_times", [made]).collections
    shown = sorted(dots.get_offsets().tolist(), key=lambda dot: dot[1])
    assert [x for x, _ in shown] == pytest.approx([100, 200, 300, 400])


def test_many_windows_are_smaller_dots(make_record: MakeRecord) -> None:
    few, many = ([make_record("a", [[0.1] * 5], round=n) for n in range(1, rounds + 1)] for rounds in (3, 12))
    sizes = [painted("window_times", records).collections[0].get_sizes()[0] for records in (few, many)]
    assert sizes == [14.0, pytest.approx(14 / 3)]


def test_efficiencies_have_the_intervals_of_the_comparison(make_record: MakeRecord) -> None:
    made = [make_record(arm, [[t]], round=n, **spec)
            for arm, spec in (("one", {}), ("two", {"strategy": "mirrored", "devices": 2}))
            for n, t in enumerate((0.1, 0.11, 0.1, 0.1), start=1)]  # fmt: skip
    (interval,) = (line for line in painted("efficiency", made).lines if "interval" in str(line.get_label()))
    low, high = interval.get_xdata()
    assert low <= 0.5 <= high
