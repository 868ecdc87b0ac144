import io
import os
from contextlib import suppress

import pytest
from rich.console import Console

from tfdist.launch.agents.inbox import AgentLost, Stopped
from tfdist.launch.agents.messages import Heartbeat, Output, Started
from tfdist.launch.console.job_state import JobState, state_of
from tfdist.launch.console.stream import streams_of, wait_until_read
from tfdist.launch.console.table import LiveTable, picture, waits_for
from tfdist.launch.text import has_controls

from .test_job_state import event, exited, job_of, replayed

W0, W1 = Started("worker-0", 1, 0.0), Started("worker-1", 2, 0.0)
CONNECTS = event("worker-0", "phase", phase="connecting")
BARRIER = event("worker-0", "barrier")
STEPS = [event(task, "step", step=5, steps=20) for task in ("worker-0", "worker-1")]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "waiting for worker-0, worker-1 to start"),
        ([W0], "waiting for worker-1 to start"),
        ([W0, W1], ""),
        ([W0, W1, CONNECTS], "waiting for worker-1 to connect"),
        ([W0, W1, CONNECTS, event("worker-1", "phase", phase="connecting")], ""),
        ([W0, W1, STEPS[0]], ""),
        ([W0, W1, *STEPS], "all 2 tasks train"),
        ([W0, W1, *STEPS, BARRIER], "waiting for worker-1 to reach the start barrier"),
        ([W0, W1, *STEPS, BARRIER, event("worker-1", "barrier")], "all 2 tasks train"),
        ([W0, W1, exited("worker-1", 0)], "worker-1 done; waiting for worker-0"),
        ([W0, W1, exited("worker-1", 0), exited("worker-0", 0)], ""),
        ([W0, W1, exited("worker-1", 1)], "worker-1 has failed; waiting for worker-0, 7 s"),
        ([W0, W1, exited("worker-1", 1), Stopped(("worker-0",))], "stopping worker-0, 6 s"),
        ([W0, W1, exited("worker-1", 1), Stopped(("worker-0",)), exited("worker-0", -15)], ""),
        ([W0, W1, Stopped(("worker-0", "worker-1"))], "stopping worker-0, worker-1, 7 s"),
    ],
)
def test_workers(messages, text):
    assert waits_for(replayed(state_of(job_of(worker=2)), *messages), 10.0) == text


def test_an_evaluator_does_not_connect_and_the_job_waits_for_its_end():
    state = replayed(state_of(job_of(worker=2, evaluator=1)), W0, W1, Started("evaluator-0", 3, 0.0), CONNECTS)
    assert waits_for(state, 5.0) == "waiting for worker-1 to connect"
    replayed(state, exited("worker-0", 0), exited("worker-1", 0))
    assert waits_for(state, 9.0) == "waiting for evaluator-0 to end"


def test_a_lost_host_is_named():
    state = replayed(state_of(job_of(worker=2)), W0, W1)
    state.tasks["worker-1"].host = "h2"
    assert waits_for(replayed(state, AgentLost("h2", "cut")), 4.0) == "h2 has failed; waiting for worker-0, 3 s"


def test_a_chief_waits_for_its_servers_which_are_stopped_after_it():
    state = state_of(job_of(chief=1, worker=3, ps=1))
    replayed(state, *(Started(task, 1, 0.0) for task in state.tasks), event("chief-0", "phase", phase="connecting"))
    assert waits_for(state, 9.0) == "waiting for worker-0, worker-1 and 2 more to connect"
    replayed(state, *(event(task, "ready") for task in list(state.tasks)[1:]))
    assert waits_for(state, 9.0) == ""
    replayed(state, event("chief-0", "step", step=1))
    assert waits_for(state, 9.0) == "chief-0 trains"
    replayed(state, exited("chief-0", 0))
    assert waits_for(state, 9.0) == "waiting for worker-0, worker-1 and 2 more to end"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def drawn(state: JobState, width: int, height: int = 25, *, hosts: bool = False, last: bool = False) -> list[str]:
    """The lines of a terminal of this size in second 10."""
    console = Console(record=True, width=width, height=height, file=io.StringIO(), highlight=False)
    console.print(picture(state, hosts, width, height, 10.0, last))
    return [line.rstrip() for line in console.export_text().splitlines()]


def training() -> JobState:
    """Two workers after 20 of 100 steps, 1 s for 10 steps."""
    state = state_of(job_of(worker=2))
    for second, step in ((9.0, 10), (10.0, 20)):
        for task in ("worker-0", "worker-1"):
            values = {"step": step, "steps": 100, "images_per_s": 1234.56, "loss": 0.5}
            state.update(event(task, "step", **values), second)
    return state


def test_a_wide_terminal_shows_everything():
    header, first, second, status = drawn(training(), 160, hosts=True)
    assert header.split() == ["task", "host", "state", "step", "images/s", "loss", "time", "left"]
    assert first.split()[:5] == ["worker-0", "localhost", "training", "20/100", "━" * 6 + "─" * 24]
    assert first.split()[5:] == ["1,234.6", "0.5000", "8", "s"]
    assert second.startswith("worker-1")
    assert status == "all 2 tasks train"


def test_a_narrow_terminal_keeps_tasks_and_steps_and_the_time_left_of_the_job():
    assert drawn(training(), 40) == [
        "task      state           step  images/s",
        "worker-0  training      20/100   1,234.6",
        "worker-1  training      20/100   1,234.6",
        "all 2 tasks train, about 8 s left",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_names_of_hosts_are_whole_or_not_there(width):
    state = training()
    for number, task in enumerate(state.tasks.values()):
        task.host = f"gpu-node-012{number}.cluster.example.com"
    header, *rows, _ = drawn(state, width, hosts=True)
    assert ("host" in header) == (width == 120)
    for number, row in enumerate(rows):
        assert row.startswith(f"worker-{number} ")
        assert (f" gpu-node-012{number}.cluster.example.com " in row) == (width == 120)
        assert "…" not in row


@pytest.mark.parametrize("width", [1, 5, 10, 20, 40, 60, 80, 200])
def test_nothing_is_wider_than_the_terminal_and_nothing_wraps(width):
    state = replayed(training(), event("worker-1", "phase", phase="evaluating [b]x[/b] :smile:"), exited("worker-0", 1))
    lines = drawn(state, width)
    assert len(lines) == 4
    assert max(map(len, lines)) <= width


def test_a_long_task_name_is_shortened_to_the_terminal():
    state = JobState()
    replayed(state, event("a-very-long-name-of-a-task-on-this-terminal-0", "step", step=1))
    assert drawn(state, 20)[1] == "a-very-long-name-of…"


def test_more_tasks_than_lines_are_counted():
    state = state_of(job_of(worker=64))
    lines = drawn(state, 80, height=10)
    assert len(lines) == 9
    assert [line.split()[0] for line in lines[1:7]] == [f"worker-{number}" for number in range(6)]
    assert lines[7:] == ["58 more: 58 waiting", "waiting for worker-0, worker-1 and 62 more to start"]


def test_the_last_line_has_room_for_the_echo_of_ctrl_c_until_the_end():
    state = state_of(job_of(worker=2))
    assert drawn(state, 20)[-1] == "waiting for wor…"
    replayed(state, Started("worker-0", 1, 0.0), Started("worker-1", 1, 0.0))
    assert drawn(state, 20)[-1] == ""
    assert drawn(state, 20, last=True)[-1].startswith("worker-1")
    assert drawn(state_of(job_of(worker=2)), 80, last=True)[-1] == "worker-1  waiting"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> LiveTable:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return LiveTable(job_of(worker=2), Terminal(), now=clock)


@pytest.mark.parametrize("closed", ["before", "meanwhile"])
def test_a_closed_terminal_does_not_stop_the_live_table(closed):
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as file:
        (out,) = streams_of(file)
        table = LiveTable(job_of(worker=1), out)
        if closed == "before":
            os.close(master)
        with table:
            if closed == "meanwhile":
                os.close(master)
            table.handle(Output("worker-0", "stdout", "x\n"))
            table.handle(exited("worker-0", 0))
        wait_until_read([out])
    assert out.queue.error is not None
    assert table.state.tasks["worker-0"].activity == "done"


def test_nothing_is_drawn_to_a_terminal_that_is_not_read(unread, clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    table = LiveTable(job_of(worker=1), unread.stream, now=clock)
    with table:
        table.handle(Output("worker-0", "stdout", ("x" * 999 + "\n") * 200))
        pending, clock.now = unread.stream.queue.pending, 100.0
        table.handle(Stopped(("worker-0",)))
        assert unread.stream.queue.pending == pending > 0
    unread.rest()


def length(table: LiveTable) -> int:
    assert isinstance(table.out, Terminal)
    return len(table.out.getvalue())


def test_changes_are_drawn_twice_a_second_but_stops_at_once_and_the_seconds_count_on(table, clock):
    def draws(seconds: float, message: object) -> bool:
        before, clock.now = length(table), clock.now + seconds
        table.handle(message)
        return length(table) > before

    clock.now = 100.0
    with table:
        assert not draws(0.1, Started("worker-0", 1, 0.0))
        assert draws(0.4, Started("worker-1", 1, 0.0))
        assert not draws(0.6, Heartbeat(0.0))
        assert draws(0.4, Heartbeat(0.0))
        assert draws(0.1, exited("worker-1", 1))
        assert not draws(0.1, exited("worker-0", 1))
        assert draws(0.1, Stopped(("worker-0",)))
    assert "starting 1 s" in table.out.getvalue()


def test_output_is_printed_above_the_table_as_it_is(table):
    with table:
        table.handle(Output("worker-0", "stdout", "[red]caf\udcff :smile: " + "x" * 100 + "\n"))
    assert "[worker-0] [red]caf\ufffd :smile: " + "x" * 100 in table.out.getvalue()


def test_steps_are_not_printed_as_lines(table):
    with table:
        table.handle(event("worker-0", "step", step=3, steps=9))
    assert "[worker-0]" not in table.out.getvalue()
    assert "3/9" in table.out.getvalue()


def test_the_cursor_is_shown_again_and_the_last_state_stays(table, clock):
    with suppress(KeyboardInterrupt), table:
        table.handle(Started("worker-0", 1, 0.0))
        table.handle(Stopped(("worker-0",)))
        table.handle(exited("worker-0", -15))
        raise KeyboardInterrupt
    text = table.out.getvalue()
    assert "stopped" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_names_in_the_table_have_no_controls():
    state = JobState()
    state.update(Started("w\x1b[2J\x9b\u202e-0", 1, 1.0), 1.0)
    text = picture(state, True, 80, 25, 10.0).plain
    assert "w-0" in text
    assert not has_controls(text)


def test_a_terminal_that_becomes_narrower_keeps_nothing_of_the_last_table(table, clock):
    with table:
        clock.now = 2.0
        table.handle(Heartbeat(0.0))
        lines = table.drawn
        assert any(len(line) > 40 for line in lines)
        table.console.size = 40, 25
        before, clock.now = length(table), 4.0
        table.handle(Heartbeat(0.0))
        redrawn = table.out.getvalue()[before:]
    wrapped = sum((len(line) - 1) // 40 for line in lines)
    assert redrawn.startswith("\r\x1b[2K\x1b[A" * wrapped)
    assert all(len(line) <= 40 for line in table.drawn)


def test_control_characters_of_a_line_that_ends_later_do_not_reach_the_terminal():
    out = io.StringIO()
    with LiveTable(job_of(worker=1), out) as table:
        table.handle(Output("worker-0", "stdout", "a\x9b31mb\x1b]0;title\x07"))
        table.handle(Output("worker-0", "stdout", "c\n"))
    assert "a31mbc" in out.getvalue()
    assert not {"\x9b", "\x07"} & set(out.getvalue())
