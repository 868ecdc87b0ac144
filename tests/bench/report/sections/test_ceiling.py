import pytest

from tests.bench.collectives.lines import line, sweep
from tfdist.bench.collectives.results import SweepFolder
from tfdist.bench.report.build import make_report
from tfdist.bench.report.write import write_page


def records(make_record, floor_ms):
    """One device takes 100 ms a step, and two workers `floor_ms` more."""
    for number, drift in enumerate((1.0, 1.01, 0.99, 1.0), start=1):
        times = [drift * 0.1] * 3
        slower = [drift * (0.1 + floor_ms / 1000)] * 3
        yield make_record("one-device", [times], round=number)
        yield make_record("multiworker/ring", [slower] * 2, round=number, strategy="multiworker", workers=2,
                          communication="ring")  # fmt: skip


def saved(tmp_path, save_all, make_record, floor_ms, seconds=0.05):
    root = save_all(tmp_path / "bench", list(records(make_record, floor_ms)))
    files = SweepFolder(root / "collectives")
    found = sweep(*(line(size=14_019_488, seconds=seconds, round=number) for number in (1, 2, 3)))
    files.save_header(found.header)
    for each in found.lines:
        files.append(each)
    return root


def section(report, key):
    return next((each for each in report.sections if each.key == key), None)


def test_an_arm_below_its_ceiling_has_its_share_and_no_warning(tmp_path, save_all, make_record):
    report = make_report([saved(tmp_path, save_all, make_record, floor_ms=100)])
    found = section(report, "ceiling")
    (row,) = found.tables[0].data.to_dict("records")
    assert (round(row["floor_ms"], 1), round(row["ceiling_images_per_s"], 1), row["above"]) == (50.0, 133.3, False)
    assert "75% of it" in found.answer[0]
    assert "above-network-ceiling" not in {warning.code for warning in report.warnings}


def test_an_arm_above_its_ceiling_is_flagged(tmp_path, save_all, make_record):
    report = make_report([saved(tmp_path, save_all, make_record, floor_ms=10)])
    warning = next(warning for warning in report.warnings if warning.code == "above-network-ceiling")
    assert warning.text.startswith("multiworker/ring: 182 images/s are more than the network allows, 133")
    assert "Measure the bandwidth again" in warning.advice


def test_beside_a_baseline_of_several_devices_no_ceiling_is_known(tmp_path, save_all, make_record):
    report = make_report([saved(tmp_path, save_all, make_record, floor_ms=100)], "multiworker/ring")
    assert section(report, "ceiling") is None


@pytest.mark.slow
def test_the_sweep_is_part_of_the_report_and_of_its_files(tmp_path, save_all, make_record):
    root = saved(tmp_path, save_all, make_record, floor_ms=100)
    report = make_report([root])
    assert section(report, "collectives").title == "All-reduce by size"
    write_page(report, root)
    assert (root / "ceiling.csv").exists()
    assert (root / "collectives_busbw.png").exists()
    assert "Ceiling of the network" in (root / "report.md").read_text()


def test_benches_side_by_side_keep_their_own_sweeps(tmp_path, save_all, make_record):
    one = saved(tmp_path / "a", save_all, make_record, floor_ms=100)
    other = saved(tmp_path / "b", save_all, make_record, floor_ms=100, seconds=0.1)
    rows = section(make_report([one, other]), "ceiling").tables[0].data.to_dict("records")
    assert [round(row["floor_ms"]) for row in rows] == [50, 100]


def test_without_a_bandwidth_there_is_no_section(tmp_path, save_all, make_record):
    report = make_report([save_all(tmp_path, list(records(make_record, 100)))])
    assert section(report, "ceiling") is None
    assert section(report, "collectives") is None
