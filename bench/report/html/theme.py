"""The colors of a page as CSS variables, so that charts follow a light or dark scheme. Pure."""

import re
from collections.abc import Mapping

from tfdist.bench.report.colors import ASYNC, DARK, GRID, INK, MUTED, NONE, PAPER, RED, SYNC

_NAMES: Mapping[str, str] = {
    PAPER: "paper",
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    RED: "red",
    SYNC: "sync",
    ASYNC: "async",
    NONE: "none",
}


def variables() -> str:
    """The style sheet that defines every color, for both schemes."""
    light = _declarations({color: color for color in DARK})
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_declarations(DARK)} }} }}\n"
        f"@media print {{ :root {{ color-scheme: light; {light} }} }}\n"
    )


def themed(svg: str) -> str:
    """`svg` with variables in place of the colors."""
    return re.sub("|".join(DARK), lambda found: f"var({_variable(found[0])})", svg, flags=re.IGNORECASE)


def _declarations(colors: Mapping[str, str]) -> str:
    return " ".join(f"{_variable(color)}: {value};" for color, value in colors.items())


def _variable(color: str) -> str:
    return f"--{_NAMES.get(color.lower(), 'c' + color[1:].lower())}"
