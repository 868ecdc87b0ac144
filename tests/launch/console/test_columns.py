"""Columns of the live table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tfdist.launch.console.columns import bar, cut, fitting_columns, header, line
from tfdist.launch.console.rows import task_row
from tfdist.launch.console.task_state import TaskState

from .test_rows import trained


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (200, ["task", "host", "state", "step", "bar", "images/s", "loss", "time left"]),
        (80, ["task", "host", "state", "step", "bar", "images/s", "loss", "time left"]),
        (70, ["task", "host", "state", "step", "images/s", "loss", "time left"]),
        (60, ["task", "host", "state", "step", "images/s", "time left"]),
        (52, ["task", "state", "step", "images/s", "time left"]),
        (40, ["task", "state", "step", "images/s"]),
        (30, ["task", "state", "step"]),
        (25, ["task", "state"]),
        (9, ["task"]),
        (1, ["task"]),
    ],
)
def test_a_narrow_terminal_shows_fewer_columns(width, shown):
    assert list(fitting_columns([task_row(trained(images_per_s=1.0), 1.0)], width, several_hosts=True)) == shown


def test_hosts_are_shown_only_if_there_are_several():
    assert "host" not in fitting_columns([task_row(TaskState("worker-0", "h1"), 0.0)], 200, several_hosts=False)


def test_a_wide_terminal_has_room_for_phases_and_bars():
    row = task_row(trained(images_per_s=1.0), 1.0)
    sizes = [fitting_columns([row], width, several_hosts=False) for width in (69, 73, 80, 200)]
    assert [(widths["state"], widths["bar"]) for widths in sizes] == [(11, 8), (15, 8), (15, 15), (15, 30)]


@given(st.integers(1, 300), st.text(max_size=60), st.text(max_size=60))
def test_lines_fit_whatever_the_texts(width, name, activity):
    row = task_row(TaskState(name, name, activity=activity), 0.0)
    widths = fitting_columns([row], width, several_hosts=True)
    assert "task" in widths
    assert cell_len(header(widths)) <= width
    assert cell_len(line(row, widths)) <= width


def test_the_bar_is_thick_as_far_as_the_steps_are_done():
    assert [bar(share, 4) for share in (0.0, 0.49, 0.5, 1.0)] == ["────", "━───", "━━──", "━━━━"]


def test_numbers_are_right_aligned_and_long_texts_end_with_an_ellipsis():
    row = task_row(trained(images_per_s=1.0), 1.0)
    widths = {"task": 6, "state": 11, "step": 8, "bar": 5}
    assert header(widths) == "task    state            step"
    assert line(row, widths) == "worke…  training       20/100  ━────"
    assert (cut("abc", 3), cut("abcd", 3), cut("abcd", 1)) == ("abc", "ab…", "…")
