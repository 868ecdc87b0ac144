"""What a terminal would show of a line with control characters: progress bars overwrite themselves."""

import re

from tfdist.launch.text import CONTROLS, ESCAPES, has_controls

KEPT_CHARACTERS = 8192
"""Characters of a line that overwrites itself; what came before is overwritten, or is too long for any terminal."""
_TOKEN = re.compile(rf"{ESCAPES}|(?P<move>[\r\b])|(?P<text>[^{CONTROLS}]+)|[{CONTROLS}]")
_COLOR = re.compile(r"\x1b\[[0-9;:]*m")  # others with an m are commands, as \x1b[>4m
RESET = "\x1b[0m"


def shorten(line: str) -> str:
    """A line that overwrites itself without its first states."""
    if len(line) > KEPT_CHARACTERS:
        start = line.find("\r", len(line) - KEPT_CHARACTERS)
        return line[start:] if start >= 0 else line
    return line


def visible(line: str, colors: bool) -> str:
    """The characters of a line once all carriage returns, backspaces and erasures are done. Other moves are dropped.

    Args:
        line: without its newline.
        colors: keep colors and other attributes, and reset them at the end.
    """
    if not has_controls(line):
        return line
    cells: list[str] = []
    column, attributes = 0, ""
    for token in _TOKEN.finditer(shorten(line)):
        if text := token["text"]:
            cells += " " * (column - len(cells))
            cells[column : column + len(text)] = [attributes + text[0], *text[1:]]
            column, attributes = column + len(text), ""
        elif token["move"]:
            column = 0 if token["move"] == "\r" else max(0, column - 1)
        elif colors and _COLOR.fullmatch(token[0]):
            attributes += token[0]
        elif token["command"] == "K":
            cells[column if token["value"] in ("", "0") else 0 :] = []
    text = "".join(cells).rstrip()
    return text + RESET if "\x1b" in text else text
