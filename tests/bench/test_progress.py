import io
import re
from collections.abc import Callable
from io import StringIO

import pytest
from rich.console import Console

from tfdist.bench.plan import PlannedRun
from tfdist.bench.progress import BenchState, Progress, ProgressLines, picture, progress_on
from tfdist.launch.agents.messages import Event, Heartbeat
from tfdist.models.record import TurnRecord


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


def turn(arm: str, round: int, incarnation: int = 1) -> TurnRecord:
    return TurnRecord(arm, round, incarnation, 1, 1, "2026-01-01T00:00:00+00:00", {})


def phase(name: str, task: str = "worker-0") -> Event:
    return Event(task, 0.0, {"event": "phase", "phase": name})


def play(progress: Progress) -> None:
    """Two arms start together, have two rounds, one dies, and the other starts again."""
    for arm in ("a [b]", "c"):
        progress.starting(arm, 1)
        progress.listen(arm, phase("importing"))
    progress.parked("a [b]")
    progress.parked("c")
    for number, (round, arm) in enumerate([(1, "c"), (1, "a [b]"), (2, "a [b]")], start=1):
        progress.turn(PlannedRun(round, arm), number, 6, 100.0)
        progress.listen(arm, Event("worker-0", 0.0, {"event": "step", "step": 20}))
        progress.done(turn(arm, round), 40.0 + number)
    progress.turn(PlannedRun(2, "c"), 4, 6, 70.0)
    progress.note("c died: worker-0 was killed by SIGKILL")
    progress.starting("a [b]", 2)
    progress.parked("a [b]")
    progress.turn(PlannedRun(3, "a [b]"), 5, 6, None)
    progress.done(turn("a [b]", 3, 2), 45.0)


@pytest.mark.parametrize("stream", [StringIO, Terminal])
def test_without_a_terminal_that_can_be_overwritten_rounds_and_starts_are_lines(
    monkeypatch: pytest.MonkeyPatch, stream: type[StringIO]
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = stream()
    with progress_on(out, quiet=False) as progress:
        play(progress)
    assert out.getvalue().splitlines() == [
        "start 1: a [b] is ready after 0 s",
        "start 1: c is ready after 0 s",
        "round 1 (2 of 6 turns, about 2 min left): c 41.0, a [b] 42.0 images/s",
        "round 2 (4 of 6 turns, about 70 s left): a [b] 43.0 images/s",
        "c died: worker-0 was killed by SIGKILL",
        "start 2: a [b] is ready after 0 s",
        "round 3 (5 of 6 turns): a [b] 45.0 images/s",
    ]


def test_a_start_has_its_duration() -> None:
    lines: list[str] = []
    seconds = iter([100.0, 114.0])
    progress = ProgressLines(lines.append, lambda: next(seconds))
    progress.starting("a", 2)
    progress.parked("a")
    assert lines == ["start 2: a is ready after 14 s"]


@pytest.mark.parametrize("columns", ["20", "40", "120"])
def test_on_a_terminal_notes_scroll_above_a_bar(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with progress_on(terminal, quiet=False) as progress:
        play(progress)
    assert "c died: worker-0 was killed by SIGKILL" in terminal.getvalue()


def test_quiet_prints_nothing(terminal: Terminal) -> None:
    for stream in (StringIO(), terminal):
        with progress_on(stream, quiet=True) as progress:
            play(progress)
        assert stream.getvalue() == ""


def in_turn(number: int = 3, left_s: float | None = 745.0) -> BenchState:
    """The third of twelve turns, which began at second 100."""
    state = BenchState()
    state.begin(PlannedRun(1, "mirrored/2"), number, 12, left_s, 100.0)
    return state


def starting() -> BenchState:
    state = BenchState()
    for arm, name in (("mirrored/2", "importing"), ("ps", "connecting")):
        state.start(arm, 1, 100.0)
        state.update(arm, phase(name), 101.0)
    state.ready = 3
    return state


def drawn(state: BenchState, width: int, now: float = 110.0) -> list[str]:
    console = Console(record=True, width=width, file=io.StringIO(), highlight=False)
    console.print(picture(state, width, now))
    return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.mark.parametrize(
    ("width", "first", "second"),
    [
        (120, "round 1, mirrored/2", "turn 3/12 " + "━" * 5 + "─" * 25 + " about 12 min left"),
        (40, "round 1, mirrored/2", "turn 3/12 ━─────── about 12 min left"),
        (30, "round 1, mirrored/2", "turn 3/12 about 12 min le…"),
        (15, "mirrored/2", "turn 3/12 …"),
    ],
)
def test_a_narrow_terminal_shows_less_in_the_same_two_lines(width: int, first: str, second: str) -> None:
    assert drawn(in_turn(), width) == [first, second]


@pytest.mark.parametrize(
    ("width", "first"),
    [
        (80, "starting mirrored/2 (importing 5 s), ps (connecting 5 s); 3 ready"),
        (60, "starting mirrored/2 (importing 5 s), ps (connecting 5 s)"),
        (40, "starting mirrored/2 and 1 more"),
    ],
)
def test_the_arms_that_start_are_shown_with_what_they_do(width: int, first: str) -> None:
    assert drawn(starting(), width, 106.0)[0] == first


@pytest.mark.parametrize("width", [1, 8, 20, 40, 80, 200])
@pytest.mark.parametrize("state", [in_turn, starting, BenchState])
def test_nothing_is_wider_than_the_terminal(width: int, state: Callable[[], BenchState]) -> None:
    lines = drawn(state(), width)
    assert len(lines) == 2
    assert max(map(len, lines)) <= width


def test_the_time_left_counts_down_and_is_never_negative() -> None:
    assert in_turn().left_text(100.0) == "about 12 min left"
    assert in_turn().left_text(800.0) == "about 45 s left"
    assert in_turn().left_text(845.0) == ""
    assert in_turn(left_s=None).left_text(100.0) == ""


def test_a_server_that_is_ready_hides_nothing() -> None:
    state = BenchState()
    state.start("ps", 1, 100.0)
    state.update("ps", phase("connecting", "chief-0"), 102.0)
    state.update("ps", Event("ps-0", 0.0, {"event": "ready"}), 104.0)
    assert "connecting 4 s" in state.line(80, 106.0)


def test_nothing_is_drawn_during_a_turn_and_starts_once_a_second_at_most(terminal: Terminal) -> None:
    with progress_on(terminal, quiet=False) as progress:
        clock = 100.0
        progress.now = lambda: clock  # type: ignore[attr-defined]
        progress.starting("a", 1)

        def drawn_at(second: float) -> bool:
            nonlocal clock
            clock = second
            before = len(terminal.getvalue())
            progress.listen("a", Heartbeat(0.0))
            return len(terminal.getvalue()) > before

        assert [drawn_at(second) for second in (100.9, 101.0, 101.5, 102.0)] == [False, True, False, True]
        progress.parked("a")
        progress.turn(PlannedRun(1, "a"), 1, 2, None)
        assert not any(drawn_at(second) for second in (104.0, 106.0, 108.0))
        before = len(terminal.getvalue())
        progress.done(turn("a", 1), 40.0)
        assert len(terminal.getvalue()) == before


def test_the_display_is_removed_at_the_end(terminal: Terminal) -> None:
    with progress_on(terminal, quiet=False) as progress:
        play(progress)
    text = terminal.getvalue()
    assert re.search(r"\x1b\[2K\s*(\x1b\[1A\x1b\[2K)*$", text.replace("\x1b[?25h", ""))
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.mark.parametrize("stream", [StringIO, Terminal])
def test_a_note_is_shown_as_it_is_without_controls(monkeypatch: pytest.MonkeyPatch, stream: type[StringIO]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = stream()
    with progress_on(out, quiet=False) as progress:
        progress.note("[red]a[/red] :smile: \x1b]0;x\x07\x9bb\u202e")
    assert "[red]a[/red] :smile: b\n" in out.getvalue()
