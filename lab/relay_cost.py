"""Lines per second that an agent relays to the launcher, compared with `cat` on the same route."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.table import Table

from lab.commands import PYTHON, TFDIST, in_turns
from lab.private_sshd import NAMES

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
    """Lines per second on every route, without start-up time: that of the same command with no lines is subtracted."""
    writer = folder / "writer.py"
    writer.write_text(WRITER)
    table = Table(f"{LINES:,} lines of 100 bytes", "lines/s", "min..max", "of cat", "aim", box=None, pad_edge=False)
    for route, commands in routes(writer, folder / "runs", ssh).items():
        rates = lines_per_s(commands)
        cat = rates[f"cat {route}"]
        for name, each in rates.items():
            ratio = median(mine / other for mine, other in zip(each, cat, strict=True))
            aim = f"{AIM_LINES_PER_S:,}" if route == "locally" and each is not cat else ""
            spread = f"{min(each):,.0f}..{max(each):,.0f}"
            table.add_row(name, f"{median(each):,.0f}", spread, f"{ratio:.2f}", aim)
    return table


def lines_per_s(commands: Mapping[str, Sequence[str]]) -> dict[str, list[float]]:
    """Rates of each command, one per round. LINES in a command is replaced by the number of lines."""
    runs = {f"{lines} {name}": with_lines(argv, lines) for name, argv in commands.items() for lines in (0, LINES)}
    seconds = in_turns(runs, ROUNDS)
    return {
        name: [
            LINES / (whole - start)
            for whole, start in zip(seconds[f"{LINES} {name}"], seconds[f"0 {name}"], strict=True)
        ]
        for name in commands
    }


def with_lines(argv: Sequence[str], lines: int) -> list[str]:
    """The command with the number of lines filled in."""
    return [word.replace("LINES", str(lines)) for word in argv]


def routes(writer: Path, runs: Path, ssh: Path | None) -> dict[str, dict[str, list[str]]]:
    """The compared commands by route: on this machine, and through ssh if available."""
    write = [PYTHON, str(writer), "LINES"]
    launch = [TFDIST, "launch", "--strategy", "one-device", "--runs-dir", str(runs)]
    commands = {
        "locally": {
            "cat locally": ["sh", "-c", f"{shlex.join(write)} | cat"],
            "tfdist launch": [*launch, "--", *write],
            "tfdist launch --quiet": [*launch, "--quiet", "--", *write],
        }
    }
    if ssh is not None:
        remote = [*launch, "--hosts", NAMES[0], "--ssh", str(ssh)]
        commands["through ssh"] = {
            "cat through ssh": [
                "sh",
                "-c",
                f"{shlex.quote(str(ssh))} {NAMES[0]} {shlex.quote(shlex.join(write))} | cat",
            ],
            "tfdist launch --hosts": [*remote, "--", *write],
            "tfdist launch --hosts --quiet": [*remote, "--quiet", "--", *write],
        }
    return commands
