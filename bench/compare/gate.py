"""When a change fails a build."""

import re

from tfdist.bench.statistics import Comparison
from tfdist.launch.errors import TfdistError


def parse_share(text: str, flag: str) -> float:
    """A share between 0 and 1: `5%` or `0.05`.

    Raises:
        TfdistError: anything else; a bare 5 as well, which could mean either.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= share < 1:
        raise TfdistError(f"{flag} {text}: give a share of at least 0% and less than 100%, as 5% or 0.05")
    return share


def is_too_slow(comparison: Comparison | None, bound: float) -> bool:
    """Whether even the upper end of its interval is slower by more than `bound`: a share of the base's speed."""
    return comparison is not None and comparison.interval is not None and comparison.interval.high < 1 - bound
