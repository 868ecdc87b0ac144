from collections.abc import Callable
from io import StringIO

import pytest

from tfdist.bench.plan import PlannedRun
from tfdist.bench.progress import duration, progress_on
from tfdist.launch.agents.messages import Event
from tfdist.models.record import Record

MakeRecord = Callable[..., Record]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: StringIO, quiet: bool, made: Record) -> str:
    with progress_on(stream, quiet) as progress:
        progress.start(PlannedRun(1, "a [b]"), 1, 2, None)
        progress.listen(Event("worker-0", 0.0, {"event": "step", "step": 20, "images_per_s": 123.4, "loss": 1.0}))
        progress.listen(Event("worker-0", 0.0, {"event": "ready"}))
        progress.end(made)
        progress.start(PlannedRun(2, "a [b]"), 2, 2, 60.0)
    return stream.getvalue()


def test_without_a_terminal_progress_is_lines(make_record: MakeRecord) -> None:
    made = make_record("a [b]", [[0.1, 0.1, 0.1, 0.7]])
    assert shown(StringIO(), False, made).splitlines() == [
        "[1/2] a [b], round 1",
        "    40.0 images/s (whole job), 20 s",
        "[2/2] a [b], round 2, about 60 s left",
    ]


@pytest.mark.parametrize("columns", ["40", "120"])
def test_on_a_terminal_results_scroll_above_a_bar(
    make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    text = shown(Terminal(), False, make_record("a [b]", status="failed", reason="x"))
    assert "a [b], round 1: failed: x" in text


def test_quiet_prints_nothing(make_record: MakeRecord) -> None:
    assert shown(StringIO(), True, make_record()) == ""
    assert shown(Terminal(), True, make_record()) == ""


@pytest.mark.parametrize(
    ("seconds", "expected"), [(48.2, "48 s"), (745, "12 min"), (3900, "65 min"), (7500, "2 h 05 min")]
)
def test_durations_have_units(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
