"""What the pictures show, read from their axes."""

from collections.abc import Callable, Sequence

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tfdist.bench.reading import ResultFolder
from tfdist.bench.report.plots import PLOTS
from tfdist.bench.report.summary import summarize
from tfdist.models.record import Record

MakeRecord = Callable[..., Record]


def painted(picture: str, records: Sequence[Record]) -> Axes:
    axes = Figure().subplots()
    _, paint = PLOTS[picture]
    paint(axes, summarize([ResultFolder("here", None, tuple(records), (), ())]))
    return axes


def test_the_ideal_is_the_baselines_figure_times_the_number_of_devices(make_record: MakeRecord) -> None:
    ones = [make_record("one", [[t]], round=n) for n, t in enumerate((0.1, 0.2, 0.125), start=1)]
    both = [make_record("both", [[t]], round=n, strategy="mirrored", devices=2, examples=20)
            for n, t in enumerate((0.16, 0.18, 0.17), start=1)]  # fmt: skip
    lines = [line for line in painted("images_per_s.png", [*ones, *both]).lines if "ideal" in str(line.get_label())]
    assert [line.get_xdata()[0] for line in lines] == [pytest.approx(2 * (100 * 50 * 80) ** (1 / 3))]


def test_the_windows_of_ranks_side_by_side_are_shown_in_the_order_of_time(make_record: MakeRecord) -> None:
    made = make_record("side", [[0.1, 0.3], [0.2, 0.4]], strategy="independent", workers=2)
    (dots,) = painted("window_times.png", [made]).collections
    shown = sorted(dots.get_offsets().tolist(), key=lambda dot: dot[1])
    assert [x for x, _ in shown] == pytest.approx([100, 200, 300, 400])
