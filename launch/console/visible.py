"""What a terminal would show of a line with control characters: progress bars overwrite themselves."""

import re

KEPT_CHARACTERS = 8192
"""Of a line that overwrites itself; what came before is overwritten, or is too long for any terminal."""
_TOKEN = re.compile(
    r"\x1b\[(?P<value>[0-9;:?]*)[ -/]*(?P<command>[@-~])"  # ECMA-48, 5.4: control sequences
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?"
    r"|(?P<move>[\r\b])|(?P<text>[^\x1b\r\b]+)"
)
RESET = "\x1b[0m"


def replace_surrogates(text: str) -> str:
    """The text with U+FFFD in place of bytes that are not UTF-8 (surrogates)."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def has_controls(text: str) -> bool:
    """Whether `visible` would change anything."""
    return "\r" in text or "\b" in text or "\x1b" in text


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
        elif token["command"] == "m" and colors:
            attributes += token[0]
        elif token["command"] == "K":
            cells[column if token["value"] in ("", "0") else 0 :] = []
    text = "".join(cells).rstrip()
    return text + RESET if "\x1b" in text else text
