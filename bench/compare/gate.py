"""When a change fails a build."""

import math
import re
from collections.abc import Sequence

from tfdist.bench.noise import ASSUMED_SD, FEWEST_SURE
from tfdist.bench.statistics import ERROR, FLOOR, ArmVerdict, Comparison, interval_of
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import counted


def parse_share(text: str, flag: str) -> float:
    """A share between 0 and 1: `5%` or `0.05`.

    Raises:
        TfdistError: anything else; a bare 5 as well, which could mean either.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)\s*", text)
    share = float(match[1]) if match else -1.0
    if match and match[2]:
        share /= 100
    if not 0 <= share < 1:
        raise TfdistError(f"{flag} {text}: give a share of at least 0% and less than 100%, as 5% or 0.05")
    return share


def is_too_slow(comparison: Comparison | None, bound: float) -> bool:
    """Whether it is called slower, and even the upper end of its interval by more than `bound` of the base's speed."""
    if comparison is None or comparison.interval is None:
        return False
    return comparison.verdict is ArmVerdict.SLOWER and comparison.interval.high < 1 - bound


def may_be_too_slow(comparison: Comparison | None, bound: float) -> bool:
    """Whether it is not known to be `is_too_slow`, but may be: its interval holds the bound, or it was not compared."""
    interval = interval_of(comparison)
    return (interval is None or interval.low < 1 - bound) and not is_too_slow(comparison, bound)


def gate_sentence(bound: float, slow: Sequence[str], unsure: Sequence[str], compared: int) -> str:
    """The answer to `--fail-slower`.

    Args:
        bound: a share.
        slow: the arms that are slower by more than that for sure.
        unsure: those that may be, because their interval holds the bound, or they were not compared.
        compared: the number of arms that were compared.
    """
    limit = f"{100 * bound:.3g} %"
    parts = [f"Slower than the bound of {limit}: {', '.join(slow)}."] if slow else []
    if unsure:
        parts.append(f"Inconclusive: {', '.join(unsure)} may be slower by more than {limit}; measure more starts.")
    return " ".join(parts) or f"Not slower than the bound of {limit}: {counted(compared, 'arm')} compared."


LONGEST = 100
"""A gate has no more starts on a quiet machine."""
_TURN_SD = 0.03
"""Standard deviation of a turn on a quiet machine."""
_BAD = 0.02 * 0.12**2
"""Variance that 2 % of starts cause which are 12 % slower."""
_FOUND = 0.92
"""A little more than 9 of 10: a bench also ends early because its noise looks smaller than it is."""
NOISY = 4
"""The most starts on a noisy machine over those on a quiet one: turns that differ by 10 %, not 3 %, need 3.7 times."""


def gate_needs(pairs: int, bound: float, rounds: int, floor: float = FLOOR) -> tuple[int, float]:
    """What a gate at `bound` needs to find a slow-down of twice as much in 9 of 10 benches.

    Args:
        pairs: comparisons of a new version with its base.
        bound: a share above 0.
        rounds: of each start.
        floor: standard deviation of ratios of equal arms on this machine.

    Returns:
        The number of starts on a quiet machine, above LONGEST if so many are too few; and half of each ratio's interval
        then, as a share of the ratio: turns that differ more need more starts for it. Simulated in
        bench_results/calibration/statistics.md.
    """
    from scipy.special import ndtri, stdtrit

    needed = math.log((1 - bound) / max(1 - 2 * bound, 0.01))
    variance = 2 * (ASSUMED_SD**2 + _TURN_SD**2 / rounds + _BAD)
    for starts in range(FEWEST_SURE, LONGEST + 2):
        error = math.sqrt(variance / starts)
        level = 1 - ERROR / pairs / 2
        half = math.hypot(float(stdtrit(starts - 1, level)) * error, float(ndtri(level)) * floor)
        if half + float(ndtri(_FOUND)) * error <= needed:
            break
    return starts, math.expm1(half)
