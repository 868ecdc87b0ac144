"""The colors of all charts, on white; THEME has those on a dark page.

Any two of a palette differ by 13.5 or more (CIE76) for readers with protanopia, deuteranopia or tritanopia (simulated
as by Machado, Oliveira and Fernandes 2009). Shapes have a contrast of 3:1 or more to the page, and text one of 4.5:1
(WCAG 2.1 AA).
"""

from collections.abc import Mapping

PAPER = "#ffffff"
INK = "#1d2b38"
"""Text, axes, intervals."""
MUTED = "#52606d"
"""Text of less importance."""
GRID = "#dfe4ea"
RED = "#a32c38"
"""Failures, and the line of the ideal."""
SYNC = "#2f6db5"
ASYNC = "#c8641a"
NONE = "#73808d"
"""Arms whose devices exchange nothing."""
EXCHANGE: Mapping[str, tuple[str, str]] = {
    "sync": (SYNC, "synchronous"),
    "async": (ASYNC, "asynchronous"),
    "no exchange": (NONE, "no exchange between devices"),
}
"""How replicas exchange gradients -> color, words."""
PALETTE = (SYNC, ASYNC, "#005a4c", "#8b2fc9", "#5a2d0c", NONE)
"""Colors of categories, in this order. If there are more, change the marker or the line too."""

THEME: Mapping[str, tuple[str, str]] = {
    PAPER: ("paper", "#14181d"),
    INK: ("ink", "#e3e8ee"),
    MUTED: ("muted", "#9fabb7"),
    GRID: ("grid", "#313a44"),
    RED: ("red", "#ff8d8d"),
    SYNC: ("sync", "#6aa9ec"),
    ASYNC: ("async", "#f0954a"),
    "#005a4c": ("green", "#7ef0d8"),
    "#8b2fc9": ("violet", "#a45cf5"),
    "#5a2d0c": ("brown", "#f3dcb5"),
    NONE: ("none", "#8f9ba8"),
}
"""Each color's name in the style sheet, and its counterpart on a dark page."""
