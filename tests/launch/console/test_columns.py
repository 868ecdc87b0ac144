"""Columns of the live table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tfdist.launch.agents.messages import Started
from tfdist.launch.console.job_state import JobState, TaskState, state_of
from tfdist.launch.console.table import bar, choose_tasks, cut, fitting_columns, header, line, row_texts

from .test_job_state import event, exited, job_of, replayed


def trained(**values) -> TaskState:
    """A task after two steps."""
    state = JobState()
    for second, step in enumerate((10, 20)):
        state.update(event("worker-0", "step", step=step, steps=100, **values), float(second))
    return state.tasks["worker-0"]


def test_a_row_shows_the_step_its_share_the_speed_and_the_time_left():
    task = trained(images_per_s=1234.56, loss=0.25)
    assert row_texts(task, 1.0) == {
        "task": "worker-0",
        "host": "",
        "state": "training",
        "step": "20/100",
        "images/s": "1,234.6",
        "waits": "",
        "loss": "0.2500",
        "time left": "8 s",
    }
    assert (task.progress, task.failed) == (0.2, False)


def test_a_task_without_a_step_shows_its_phase_and_for_how_long():
    state = replayed(JobState(), Started("worker-0", 1, 0.0), event("worker-0", "phase", phase="importing"))
    task = state.tasks["worker-0"]
    row = row_texts(task, 5.2)
    assert (row["state"], row["step"], task.progress) == ("importing 3 s", "", None)
    assert row_texts(task, 2.1)["state"] == "importing"


def test_steps_without_a_total_have_no_bar_and_more_steps_than_planned_fill_it():
    state = replayed(JobState(), event("a", "step", step=7), event("b", "step", step=7, steps=5))
    shown = [(row_texts(task, 2.0)["step"], task.progress) for task in state.tasks.values()]
    assert shown == [("7", None), ("7/5", 1.0)]


def test_of_many_tasks_the_failed_the_first_and_the_slowest_are_shown_in_order():
    state = state_of(job_of(worker=64))
    replayed(state, *(Started(task, 1, 0.0) for task in state.tasks))
    replayed(state, *(event(task, "step", step=9, steps=20) for task in state.tasks))
    replayed(state, event("worker-0", "step", step=19), event("worker-40", "step", step=8), exited("worker-50", 1))
    shown, others = choose_tasks(state, 4)
    assert [task.name for task in shown] == ["worker-0", "worker-1", "worker-40", "worker-50"]
    assert others == "60 more: 60 training"
    shown, others = choose_tasks(state, 0)
    assert ([task.name for task in shown], others) == (["worker-50"], "63 more: 63 training")


def test_few_tasks_are_all_shown():
    shown, others = choose_tasks(state_of(job_of(worker=2)), 2)
    assert ([task.name for task in shown], others) == (["worker-0", "worker-1"], "")


def test_an_evaluator_shows_its_last_result_while_it_waits_for_the_next_checkpoint():
    state = replayed(state_of(job_of(worker=1, evaluator=1)), Started("evaluator-0", 1, 0.0))
    seen = []
    for message in (
        event("evaluator-0", "ready"),
        event("evaluator-0", "phase", phase="evaluating"),
        event("evaluator-0", "evaluation", step=120, accuracy=0.9126),
        event("evaluator-0", "phase", phase="evaluating"),
        event("evaluator-0", "evaluation", step=None, accuracy="high"),
    ):
        texts = row_texts(replayed(state, message).tasks["evaluator-0"], 3.0)
        seen.append((texts["state"], texts["step"]))
    assert seen == [
        ("ready", ""), ("evaluating 2 s", ""), ("accuracy 0.913", "120"), ("evaluating 2 s", "120"), ("ready", "")
    ]  # fmt: skip


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
    assert list(fitting_columns([row_texts(trained(images_per_s=1.0), 1.0)], width, several_hosts=True)) == shown


def test_hosts_are_shown_only_if_there_are_several():
    assert "host" not in fitting_columns([row_texts(TaskState("worker-0", "h1"), 0.0)], 200, several_hosts=False)


def test_a_wide_terminal_has_room_for_phases_and_bars():
    row = row_texts(trained(images_per_s=1.0), 1.0)
    sizes = [fitting_columns([row], width, several_hosts=False) for width in (69, 73, 80, 200)]
    assert [(widths["state"], widths["bar"]) for widths in sizes] == [(11, 8), (15, 8), (15, 15), (15, 30)]


@given(st.integers(1, 300), st.text(max_size=60), st.text(max_size=60))
def test_lines_fit_whatever_the_texts(width, name, activity):
    row = row_texts(TaskState(name, name, activity=activity), 0.0)
    widths = fitting_columns([row], width, several_hosts=True)
    assert "task" in widths
    assert cell_len(header(widths)) <= width
    assert cell_len(line(row, 0.5, widths)) <= width


def test_the_bar_is_thick_as_far_as_the_steps_are_done():
    assert [bar(share, 4) for share in (0.0, 0.49, 0.5, 1.0)] == ["────", "━───", "━━──", "━━━━"]


def test_numbers_are_right_aligned_and_long_texts_end_with_an_ellipsis():
    row = row_texts(trained(images_per_s=1.0), 1.0)
    widths = {"task": 6, "state": 11, "step": 8, "bar": 5}
    assert header(widths) == "task    state            step"
    assert line(row, 0.2, widths) == "worke…  training       20/100  ━────"
    assert (cut("abc", 3), cut("abcd", 3), cut("abcd", 1)) == ("abc", "ab…", "…")
