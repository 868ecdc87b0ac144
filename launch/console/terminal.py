"""What a terminal can do."""

import os
from typing import TextIO


def can_redraw(file: TextIO) -> bool:
    """Whether the file is a terminal whose lines can be overwritten."""
    return file.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
