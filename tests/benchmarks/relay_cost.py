"""How many lines a second come through an agent to the launcher, against `cat` of the same lines on the same way."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from commands import PYTHON, TFDIST, in_turns
from private_sshd import NAMES
from rich.table import Table

LINES = 500_000
ROUNDS = 2
AIM_LINES_PER_S = 100_000
WRITER = """\
import sys
line = "x" * 99 + "\\n"
for _ in range(int(sys.argv[1])):
    sys.stdout.write(line)
"""


def relay(folder: Path, ssh: Path | None) -> Table:
    """Lines a second on every way there is; its start is taken away, as the same command takes it without lines."""
    writer = folder / "writer.py"
    writer.write_text(WRITER)
    table = Table(f"{LINES:,} lines of 100 bytes", "lines/s", "min..max", "of cat", "aim", box=None, pad_edge=False)
    for way, commands in ways(writer, folder / "runs", ssh).items():
        rates = lines_per_s(commands)
        cat = rates[f"cat {way}"]
        for name, each in rates.items():
            ratio = median(mine / other for mine, other in zip(each, cat, strict=True))
            aim = f"{AIM_LINES_PER_S:,}" if way == "locally" and each is not cat else ""
            spread = f"{min(each):,.0f}..{max(each):,.0f}"
            table.add_row(name, f"{median(each):,.0f}", spread, f"{ratio:.2f}", aim)
    return table


def lines_per_s(commands: Mapping[str, Sequence[str]]) -> dict[str, list[float]]:
    """Each command's rate, round by round; a command's last word becomes the number of lines."""
    runs = {f"{lines} {name}": with_lines(argv, lines) for name, argv in commands.items() for lines in (0, LINES)}
    taken = in_turns(runs, ROUNDS)
    return {
        name: [
            LINES / (whole - start) for whole, start in zip(taken[f"{LINES} {name}"], taken[f"0 {name}"], strict=True)
        ]
        for name in commands
    }


def with_lines(argv: Sequence[str], lines: int) -> list[str]:
    """The command for so many lines."""
    return [word.replace("LINES", str(lines)) for word in argv]


def ways(writer: Path, runs: Path, ssh: Path | None) -> dict[str, dict[str, list[str]]]:
    """What is compared: on this machine, and through ssh where there is one."""
    write = [PYTHON, str(writer), "LINES"]
    launch = [TFDIST, "launch", "--strategy", "one-device", "--runs-dir", str(runs)]
    found = {
        "locally": {
            "cat locally": ["sh", "-c", f"{shlex.join(write)} | cat"],
            "tfdist launch": [*launch, "--", *write],
            "tfdist launch --quiet": [*launch, "--quiet", "--", *write],
        }
    }
    if ssh is not None:
        there = [*launch, "--hosts", NAMES[0], "--ssh", str(ssh)]
        found["through ssh"] = {
            "cat through ssh": [
                "sh",
                "-c",
                f"{shlex.quote(str(ssh))} {NAMES[0]} {shlex.quote(shlex.join(write))} | cat",
            ],
            "tfdist launch --hosts": [*there, "--", *write],
            "tfdist launch --hosts --quiet": [*there, "--quiet", "--", *write],
        }
    return found
