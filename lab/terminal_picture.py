"""Writes docs/terminal.svg, the terminal in the README: real commands, in a terminal of their own, as rich exports it.

python -m lab.terminal_picture    # about 4 minutes on two cores
"""

import os
import pty
import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from termios import TIOCSWINSZ

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

from lab.commands import TFDIST

COMMANDS = (
    "tfdist launch --strategy multiworker --workers 2 --preset smoke",
    "tfdist bench --strategy mirrored --devices 1,2",
)
COLUMNS, LINES = 120, 300
PICTURE = Path(__file__).parents[1] / "docs" / "terminal.svg"
COLORS = {"default": "default", "brown": "yellow", "brightbrown": "bright_yellow"}
"""Where a name of pyte is not one of rich, apart from bright..., which is bright_... there."""


def run(argv: Sequence[str], folder: Path) -> list[Text]:
    """The lines that a terminal shows after a command, with their colors.

    Raises:
        SystemExit: the command failed.
    """
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    terminal, process_end = pty.openpty()
    ioctl(process_end, TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    process = subprocess.Popen(argv, cwd=folder, env=environment, stdin=process_end, stdout=process_end, stderr=process_end)  # fmt: skip
    os.close(process_end)
    try:
        while data := os.read(terminal, 1 << 16):
            stream.feed(data)
    except OSError:  # no process has the terminal open any more
        pass
    os.close(terminal)
    if process.wait():
        raise SystemExit(f"{' '.join(argv)} exited with code {process.returncode}")
    lines = [_line([screen.buffer[row][column] for column in range(COLUMNS)]) for row in range(LINES)]
    while lines and not lines[-1].plain:
        lines.pop()
    return lines


def _line(chars: list[Char]) -> Text:
    line = Text()
    for char in chars:
        line.append(char.data, Style(color=_color(char.fg), bold=char.bold, underline=char.underscore))
    line.rstrip()
    return line


def _color(name: str) -> str:
    if len(name) == 6 and set(name) <= set("0123456789abcdef"):
        return f"#{name}"
    return COLORS.get(name, name.replace("bright", "bright_"))


def main() -> None:
    """Run the commands in an empty folder, and write the picture."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            for line in run([TFDIST, *command.split()[1:]], Path(folder)):
                console.print(line, soft_wrap=True)
            console.print()
    svg = console.export_svg(title="tfdist", unique_id="tfdist")
    svg = re.sub(r"@font-face {.*?}\s*", "", svg, flags=re.DOTALL)  # would be loaded from another host
    PICTURE.write_text(svg.replace("Fira Code, ", ""), encoding="utf-8")


if __name__ == "__main__":
    main()
