"""What a reader sees on a terminal of a width."""

import io
import re
from collections.abc import Iterable

ARMS = (
    "parameter-server/async/centralised",
    "parameter-server/async/centralised/2-ps",
    "multiworker/hierarchical-copy/gradient-dtype=bfloat16/bytes-per-pack=4194304",
)
"""Names of arms: as long as a user's are, and one nearly as wide as a terminal."""
HOSTS = ("gpu-node-0123.cluster.example.com", "gpu-node-0124.cluster.example.com")


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def shown(printed: str, width: int) -> list[str]:
    """The rows of the terminal: it breaks a line that is too long wherever its edge is."""
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed).splitlines()
    return [line[at : at + width] for line in lines for at in range(0, max(1, len(line)), width)]


def broken(names: Iterable[str], printed: str, width: int) -> list[str]:
    """The names that stand in no row as a whole, with nothing but blanks or punctuation around them."""
    rows = shown(printed, width)
    return [
        name for name in names if not any(re.search(rf"(?<![\w/=.-]){re.escape(name)}(?![\w/=-])", row) for row in rows)
    ]
