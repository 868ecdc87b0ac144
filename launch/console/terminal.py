"""What a terminal can do."""

import os
from typing import TextIO

SYMBOLS = "\u2501\u2500\u2026"
"""The characters of bars and cut texts."""


def can_redraw(file: TextIO) -> bool:
    """Whether the file is a terminal whose lines can be overwritten and that shows bars."""
    return file.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown") and _shows_bars(file)


def _shows_bars(file: TextIO) -> bool:
    try:
        SYMBOLS.encode(file.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
