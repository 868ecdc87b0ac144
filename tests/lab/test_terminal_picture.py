"""The terminal of the README."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from lab.terminal_picture import COMMANDS, PICTURE, run

PROGRAM = r"""
import sys
print("step 1", end="\r")
print("\x1b[2Kstep 2 \x1b[1;33mslow\x1b[0m")
print(sys.stdout.isatty())
"""


def test_a_terminal_shows_what_is_left_of_overwritten_lines_with_its_colors(tmp_path: Path) -> None:
    first, second = run([sys.executable, "-c", PROGRAM], tmp_path)
    assert (first.plain, second.plain) == ("step 2 slow", "True")
    style = first.get_style_at_offset(Console(), 7)
    assert style.bold
    assert "yellow" in str(style)


def test_a_command_that_fails_leaves_the_picture_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="exited with code 3"):
        run([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)


def test_the_picture_shows_these_commands_and_loads_nothing() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert all(word in svg for command in COMMANDS for word in command.split())
    assert "url(http" not in svg
