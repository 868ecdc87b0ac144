import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.collectives.results import Line, SweepFolder, SweepHeader, read_collectives
from tfdist.launch.errors import TfdistError
from tfdist.models.collectives.spec import CollectiveOp
from tfdist.strategies.options import GradientDtype

HEADER = SweepHeader(
    "tfdist collectives",
    "2026-01-01T00:00:00+00:00",
    ("h1", "h2"),
    3,
    {"cpu": ("A CPU",)},
    {"bytes_per_s": 1e8, "rtt_s": 0.1},
    {"a": "b"},
    (("ring", "auto"), ("auto", "ring")),
    (("auto", "ring"),),
)
NAMES = st.text(st.characters(categories=["L", "N", "P"]), max_size=100)
LINE = Line("ring", CollectiveOp.ALL_REDUCE, 2, 4, 14_020_000, 158, None, "float32", 1, 5, 0.02, 0, "ring")


@pytest.fixture
def folder(tmp_path):
    files = SweepFolder(tmp_path / "it's; new")
    files.save_header(HEADER)
    return files


@given(st.builds(Line, op=st.sampled_from(CollectiveOp), arm=NAMES, hosts=st.integers(1, 9), ranks=st.integers(1, 9),
                 bytes=st.integers(1, 1 << 40), tensors=st.integers(1, 9), pack_bytes=st.none(), round=st.integers(1, 9),
                 iterations=st.integers(1, 9), wrong=st.integers(0, 9), dtype=st.sampled_from(GradientDtype),
                 seconds=st.floats(1e-9, 1e9), communication=NAMES, incarnation=st.integers(1, 9)))  # fmt: skip
def test_what_was_written_is_read(tmp_path_factory, line):
    files = SweepFolder(tmp_path_factory.mktemp("sweep"))
    files.save_header(HEADER)
    files.append(line)
    sweep = read_collectives(files.path)
    assert (sweep.header, sweep.lines, sweep.unreadable) == (HEADER, (line,), ())


def test_a_line_names_either_the_communication_or_the_cross_device_ops(folder):
    folder.append(LINE)
    folder.append(replace(LINE, communication=None, cross_device="auto"))
    one, other = map(json.loads, folder.lines.read_text().splitlines())
    assert one["communication"] == "ring"
    assert "cross_device" not in one
    assert other["cross_device"] == "auto"
    assert "communication" not in other


def test_the_gradients_of_mobilenet_in_20_ms_on_4_ranks():
    assert (LINE.algbw, LINE.busbw) == (pytest.approx(0.701), pytest.approx(1.0515))


def test_lines_that_were_cut_off_or_make_no_sense_are_listed(folder):
    folder.append(LINE)
    with folder.lines.open("a") as file:
        file.write('{"arm": "ring", "op"\n{}\n[]\n')
    folder.append(replace(LINE, seconds=0.0))
    folder.append(LINE)
    sweep = read_collectives(folder.path)
    assert sweep.lines == (LINE, LINE)
    assert len(sweep.unreadable) == 4
    assert "line 2" in sweep.unreadable[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [("link", {"rtt_s": 0.1}), ("link", {"bytes_per_s": 0, "rtt_s": 1}), ("hosts", 3), ("environment", {"cpu": 1}),
     ("not_measured", {"a": None}), ("command", ["x"]), ("started", 1), ("rounds", -1), ("starts", ["ring"]),
     ("same_arms", [["ring"]])],
)  # fmt: skip
def test_a_wrong_value_in_the_header_is_one_sentence(folder, key, value):
    folder.header.write_text(json.dumps({**json.loads(folder.header.read_text()), key: value}))
    with pytest.raises(TfdistError, match=rf"collectives\.json is incomplete \({key}: .*\): measure again"):
        read_collectives(folder.path)


def test_a_folder_without_a_measurement_has_no_lines(folder):
    assert read_collectives(folder.path).lines == ()


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(TfdistError, match=r"collectives\.json: give the folder of a `tfdist collectives`"):
        read_collectives(tmp_path)


def test_another_format_is_refused_by_name(folder):
    folder.header.write_text('{"format": 3}')
    with pytest.raises(TfdistError, match="format 3: this tfdist reads formats 1 and 2"):
        read_collectives(folder.path)


def test_format_1_has_a_single_start(folder):
    header, line = json.loads(folder.header.read_text()), asdict(LINE)
    folder.header.write_text(json.dumps({**without(header, "starts", "same_arms"), "format": 1}))
    folder.lines.write_text(json.dumps(without(line, "incarnation")) + "\n")
    sweep = read_collectives(folder.path)
    assert (sweep.lines, sweep.header.starts, sweep.header.same_arms) == ((LINE,), (), ())


def without(values, *names):
    return {name: value for name, value in values.items() if name not in names}
