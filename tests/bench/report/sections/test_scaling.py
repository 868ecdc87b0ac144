"""Curves over devices, of known times."""

import pytest
from matplotlib.figure import Figure

from tests.bench.report.rows import folder, timed
from tfdist.bench.report.section import Section
from tfdist.bench.report.sections.scaling import scaling_section
from tfdist.bench.report.summary import ReportData, summarize
from tfdist.models.record import Record


def mirrored(arm: str, seconds: float, devices: int, **spec: object) -> list[Record]:
    return timed(
        arm,
        seconds,
        seconds * 1.01,
        seconds,
        seconds,
        strategy="mirrored",
        devices=devices,
        examples=10 * devices,
        **spec,
    )


ONE = timed("one", 0.1, 0.101, 0.1, 0.1)
TWO, FOUR = mirrored("mirrored/2", 0.11, 2), mirrored("mirrored/4", 0.125, 4)


def section(records: list[Record]) -> Section | None:
    folders = (folder(records),)
    return scaling_section(ReportData(folders, summarize(folders)))


def test_arms_that_differ_in_size_only_are_one_curve() -> None:
    copied = mirrored("copy", 0.12, 2, cross_device="hierarchical-copy")
    made = section([*ONE, *FOUR, *TWO, *copied])
    assert made is not None
    data = made.charts[0].data
    assert data[["curve", "devices"]].values.tolist() == [["mirrored", 2], ["mirrored", 4], ["copy", 2], ["one", 1]]
    ideal = data.set_index("arm")["images_per_s_ideal"]
    assert ideal["mirrored/4"] == pytest.approx(2 * ideal["mirrored/2"])
    assert made.answer == ("On 4 devices, the most that were measured, mirrored/4 has the most images/s: 319, "
                           "80% of 4 times one device.",
                           "That is as predicted from fewer devices: 345 images/s (297 to 402).")  # fmt: skip


def test_a_curve_begins_at_the_baseline() -> None:
    made = section([*ONE, *TWO, *FOUR])
    assert made is not None
    axes = Figure().subplots()
    made.charts[0].paint(axes)
    starts = [
        line.get_xydata()[0].tolist()
        for line in axes.lines
        if line.get_linestyle() == "-" and len(line.get_xdata()) > 1
    ]
    rate = pytest.approx(100 / 1.01 ** (1 / 4))
    assert [1.0, rate] in starts
    (ideal,) = (line for line in axes.lines if "ideal" in str(line.get_label()))
    assert ideal.get_ydata().tolist() == [pytest.approx(n * 100 / 1.01 ** (1 / 4)) for n in (1, 2, 4)]


def test_fewer_than_three_numbers_of_devices_are_no_curve() -> None:
    assert section([*ONE, *TWO]) is None
    assert section([*ONE, *timed("other", 0.1, 0.1, 0.1, 0.1)]) is None
    assert section(TWO + FOUR) is None


def test_other_batches_are_other_curves() -> None:
    large = mirrored("large/2", 0.2, 2, batch_size=20)
    made = section([*ONE, *TWO, *FOUR, *large])
    assert made is not None
    assert made.charts[0].data.groupby("curve")["arm"].agg(list).to_dict() == {
        "mirrored": ["mirrored/2", "mirrored/4"],
        "large/2": ["large/2"],
        "one": ["one"],
    }


def test_each_size_is_predicted_from_the_smaller_ones() -> None:
    slow = mirrored("mirrored/8", 0.3, 8)
    made = section([*ONE, *TWO, *FOUR, *slow])
    assert made is not None
    data = made.charts[0].data.set_index("arm")
    assert data.images_per_s_predicted.isna().to_dict() == {"one": True, "mirrored/2": True, "mirrored/4": False, "mirrored/8": False}  # fmt: skip
    two, four, one = (data.images_per_s[name] for name in ("mirrored/2", "mirrored/4", "one"))
    rest = {2: 2 / two - 1 / one, 4: 4 / four - 1 / one}
    assert data.images_per_s_predicted["mirrored/8"] == pytest.approx(8 / (1 / one + 2 * rest[4] - rest[2]), rel=1e-3)
    assert "slower than predicted" in made.answer[1]
