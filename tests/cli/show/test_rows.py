import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.cli.screens import ARMS, Screen, broken
from tfdist.cli.show.rows import PlainConsole, aligned, echo_wrapped, laid_out, show_rows, wrapped

ROWS = [
    {"arm": arm, "images/s (whole job)": f"{100 * number:.1f}", "95 % interval": "99.0 to 101.0", "verdict": verdict}
    for number, (arm, verdict) in enumerate(
        zip(
            ("one-device", *ARMS),
            ("-", "faster", "not compared: the anchor, on another machine", "slower"),
            strict=True,
        )
    )
]
NARROW = ("arm", "images/s (whole job)", "verdict", "a column of other tables")


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 120, 200])
def test_no_name_and_no_figure_is_broken_or_cut(width):
    header, *rows = laid_out(ROWS, width, NARROW)
    for lines, row in zip(rows, ROWS, strict=True):
        assert any(line.split("  ")[0] == row["arm"] for line in lines)
        assert any(row["images/s (whole job)"] in line.split() for line in lines)
        assert {*row["verdict"].split()} <= {*" ".join(lines).split(), "-"}
        assert "…" not in "".join(lines)
        for line in lines:  # only a single word is wider than the terminal
            assert len(line) <= width or len(line.split()) == 1
    assert ("interval" in " ".join(header)) == any("99.0 to 101.0" in line for lines in rows for line in lines)


def test_where_there_is_room_each_row_is_a_line():
    for width in (None, 200):
        table = laid_out(ROWS, width, NARROW)
        assert [len(lines) for lines in table] == [1] * 5
        assert table[0][0].split("  ")[0] == "arm"


def test_prose_is_wrapped_before_columns_are_dropped_and_names_have_lines_of_their_own_last():
    rows = [{"arm": "one-device", "ratio": "1.0", "rounds": "8", "verdict": "the anchor, on another machine"}]
    assert aligned(rows, 50) == [
        "arm         ratio  rounds  verdict",
        "one-device  1.0    8       the anchor, on another",
        "                           machine",
    ]
    assert aligned(rows, 40, ("arm", "verdict")) == [
        "arm         verdict",
        "one-device  the anchor, on another",
        " " * 12 + "machine",
    ]
    assert aligned(rows, 26) == [
        "arm         ratio  rounds",
        "    verdict",
        "one-device  1.0    8",
        "    the anchor, on another",
        "    machine",
    ]
    assert aligned([{"arm": "a" * 30, "ratio": "1.0"}, {"arm": "b", "ratio": "2.0"}], 32) == [
        "arm" + " " * 24 + "ratio",
        "a" * 30,
        " " * 27 + "1.0",
        "b" + " " * 26 + "2.0",
    ]


@given(
    st.lists(
        st.fixed_dictionaries({"a b": st.text(max_size=30), "c": st.text("1.", max_size=9), "why": st.text()}),
        min_size=1,
    ),
    st.none() | st.integers(1, 120),
)
def test_texts_of_others_stay_in_their_row_and_every_word_is_shown(rows, width):
    table = laid_out(rows, width, ("a b", "why"))
    assert len(table) == 1 + len(rows)
    assert all(line.isprintable() or not re.search(r"[\x00-\x1f]", line) for lines in table for line in lines)
    if width is None:
        assert all(len(lines) == 1 for lines in table)


@given(st.text("ab- ").filter(str.strip), st.integers(1, 30), st.integers(0, 4))
def test_sentences_are_broken_at_blanks_only(text, width, indent):
    lines = wrapped(text, width, indent)
    assert " ".join(lines).split() == text.split()
    assert all(cell_len(line) <= width or len(line.split()) == 1 for line in lines)
    assert wrapped(text, None, indent) == [text]


@pytest.mark.parametrize("width", [60, 80])
def test_a_terminal_gets_a_table_with_whole_names_and_a_file_lines(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    screen, file = Screen(), io.StringIO()
    for stream in (screen, file):
        console = PlainConsole(stream)
        show_rows(console, ROWS, NARROW, red=lambda row: row["verdict"] == "slower")
        console.print(f"no measurable difference between {', '.join(ARMS)}")
        echo_wrapped([f"refused: {', '.join(ARMS)}: only 1 GPU"], stream)
    assert broken([arm for arm in ARMS if len(arm) < width], screen.getvalue(), width) == []
    assert screen.getvalue().count("─" * (width // 2)) == 1
    header, *rows, sentence, refused = file.getvalue().splitlines()
    assert header.split()[0] == "arm"
    assert [row.split()[0] for row in rows] == [row["arm"] for row in ROWS]
    assert sentence.endswith(ARMS[-1])
    assert refused.endswith(": only 1 GPU")
