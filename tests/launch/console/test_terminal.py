"""Which files get a display that is overwritten."""

import io
import os

import pytest

from tfdist.launch.console.terminal import can_redraw


@pytest.mark.parametrize(
    ("term", "encoding", "expected"),
    [("xterm", "utf-8", True), ("dumb", "utf-8", False), ("xterm", "ascii", False), ("xterm", "latin-1", False)],
)
def test_a_display_needs_a_terminal_that_moves_its_cursor_and_shows_bars(term, encoding, expected, monkeypatch):
    monkeypatch.setenv("TERM", term)
    master, slave = os.openpty()
    with os.fdopen(slave, "w", encoding=encoding) as file, os.fdopen(master):
        assert can_redraw(file) is expected


def test_a_file_is_not_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert not can_redraw(io.StringIO())
