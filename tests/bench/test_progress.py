import io
import re
from collections.abc import Callable
from io import StringIO

import pytest
from rich.console import Console

from tfdist.bench.current_run import CurrentRun
from tfdist.bench.plan import PlannedRun
from tfdist.bench.progress import picture, progress_on
from tfdist.launch.agents.messages import Event, Heartbeat
from tfdist.models.record import Record

MakeRecord = Callable[..., Record]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


def shown(stream: StringIO, quiet: bool, made: Record) -> str:
    with progress_on(stream, quiet) as progress:
        progress.start(PlannedRun(1, "a [b]"), 1, 2, None)
        progress.listen(Event("worker-0", 0.0, {"event": "step", "step": 20, "images_per_s": 123.4, "loss": 1.0}))
        progress.listen(Event("worker-0", 0.0, {"event": "ready"}))
        progress.end(made)
        progress.start(PlannedRun(2, "a [b]"), 2, 2, 60.0)
    return stream.getvalue()


@pytest.mark.parametrize("stream", [StringIO, Terminal])
def test_without_a_terminal_that_can_be_overwritten_progress_is_lines(
    make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch, stream: type[StringIO]
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    made = make_record("a [b]", [[0.1, 0.1, 0.1, 0.7]])
    assert shown(stream(), False, made).splitlines() == [
        "[1/2] a [b], round 1",
        "    40.0 images/s (whole job), 20 s",
        "[2/2] a [b], round 2, about 60 s left",
    ]


@pytest.mark.parametrize("columns", ["20", "40", "120"])
def test_on_a_terminal_results_scroll_above_a_bar(
    make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch, terminal: Terminal, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = shown(terminal, False, make_record("a [b]", status="failed", reason="x"))
    assert "a [b], round 1: failed: x" in text


def test_quiet_prints_nothing(make_record: MakeRecord, terminal: Terminal) -> None:
    assert shown(StringIO(), True, make_record()) == ""
    assert shown(terminal, True, make_record()) == ""


def current(number: int = 3, left_s: float | None = 745.0) -> CurrentRun:
    """The third of twelve runs, which started at second 100, after 20 of 100 steps."""
    run = CurrentRun(PlannedRun(1, "mirrored/2"), number, 12, left_s, 100.0)
    for second, step in ((109.0, 10), (110.0, 20)):
        event = {"event": "step", "step": step, "steps": 100, "images_per_s": 1234.56}
        run.job.update(Event("worker-0", 0.0, event), second)
    return run


def drawn(run: CurrentRun, width: int, now: float = 110.0) -> list[str]:
    console = Console(record=True, width=width, file=io.StringIO(), highlight=False)
    console.print(picture(run, width, now))
    return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.mark.parametrize(
    ("width", "first", "second"),
    [
        (
            120,
            "mirrored/2, round 1: step 20/100, 1,235 images/s",
            "run 3/12 " + "━" * 5 + "─" * 25 + " about 12 min left",
        ),
        (40, "mirrored/2, round 1: step 20/100", "run 3/12 ━──────── about 12 min left"),
        (30, "mirrored/2: step 20/100", "run 3/12 about 12 min left"),
        (15, "mirrored/2: st…", "run 3/12 a…"),
    ],
)
def test_a_narrow_terminal_shows_less_in_the_same_two_lines(width: int, first: str, second: str) -> None:
    assert drawn(current(), width) == [first, second]


@pytest.mark.parametrize("width", [1, 8, 20, 40, 80, 200])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    lines = drawn(current(), width)
    assert len(lines) == 2
    assert max(map(len, lines)) <= width


def test_the_time_left_counts_down_and_is_never_negative() -> None:
    assert current().left_text(100.0) == "about 12 min left"
    assert current().left_text(800.0) == "about 45 s left"
    assert current().left_text(845.0) == ""
    assert current(left_s=None).left_text(100.0) == ""


def test_before_the_first_step_the_latest_phase_is_shown() -> None:
    run = CurrentRun(PlannedRun(1, "ps"), 1, 12, None, 100.0)
    assert run.line(80, 100.0) == "ps, round 1: starting"
    for second, task, event in (
        (101.0, "chief-0", {"event": "phase", "phase": "importing"}),
        (102.0, "chief-0", {"event": "phase", "phase": "connecting"}),
        (103.0, "ps-0", {"event": "phase", "phase": "importing"}),
        (104.0, "ps-0", {"event": "ready"}),
    ):
        run.job.update(Event(task, 0.0, event), second)
    assert run.line(80, 106.0) == "ps, round 1: connecting 4 s"


def test_the_slowest_task_is_shown_with_what_it_does_besides_training() -> None:
    run = current()
    run.job.update(Event("worker-1", 0.0, {"event": "step", "step": 19}), 110.0)
    assert run.line(80, 110.0) == "mirrored/2, round 1: step 19"
    run.job.update(Event("worker-1", 0.0, {"event": "phase", "phase": "evaluating"}), 111.0)
    assert run.line(80, 113.0) == "mirrored/2, round 1: step 19, evaluating 2 s"


def test_it_is_drawn_once_a_second_at_most(terminal: Terminal) -> None:
    with progress_on(terminal, quiet=False) as progress:
        seconds = iter([100.0, 100.0, 100.9, 101.0, 101.0, 101.5, 102.0, 102.0])
        progress.now = lambda: next(seconds)
        progress.start(PlannedRun(1, "a"), 1, 2, None)
        drawings = []
        for _ in range(4):
            before = len(terminal.getvalue())
            progress.listen(Heartbeat(0.0))
            drawings.append(len(terminal.getvalue()) > before)
    assert drawings == [False, True, False, True]


def test_the_display_is_removed_at_the_end(terminal: Terminal, make_record: MakeRecord) -> None:
    shown(terminal, False, make_record())
    text = terminal.getvalue()
    assert re.search(r"\x1b\[2K\s*(\x1b\[1A\x1b\[2K)*$", text.replace("\x1b[?25h", ""))
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
